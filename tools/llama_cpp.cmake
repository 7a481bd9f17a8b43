# Read while llama.cpp is configured for the tests of GGUF models: its command-line tools share code
# that is half of the work to compile, and that the library does without.
set(LLAMA_BUILD_COMMON OFF)
