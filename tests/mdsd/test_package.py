"""The package itself: what importing it costs, and what it exports."""

import inspect

import pytest

import mdsd

from ..plugins import install, run


@pytest.mark.parametrize(
    "heavy", ["cvxpy", "networkx", "matplotlib", "torch", "transformers", "numba", "scipy"]
)
def test_import_is_light(heavy):
    done = run(f"import mdsd, sys; sys.exit({heavy!r} in sys.modules)")
    assert done.returncode == 0, done.stderr


def test_the_light_import_check_can_fail():
    done = run("import mdsd, sys; sys.exit('numpy' in sys.modules)")
    assert done.returncode == 1


@pytest.mark.parametrize(
    "package", [mdsd, mdsd.drafts, mdsd.verifiers, mdsd.decoding], ids=lambda found: found.__name__
)
def test_dir_lists_what_is_public_and_nothing_else(package):
    machinery = {"annotations", "import_module", "ModuleType", "built_in", "base"}
    assert set(package.__all__) <= set(dir(package))
    assert not machinery.intersection(dir(package))
    for name in set(dir(package)) - {
        "economize",
        "layouts",
        "llama_cpp",
        "transformers",
    }:  # of other packages
        assert getattr(package, name).__doc__


@pytest.mark.parametrize("name", mdsd.__all__)
def test_exports(name):
    exported = getattr(mdsd, name)
    if not isinstance(exported, str):
        assert (inspect.getdoc(exported) or "").strip()


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = mdsd.nonsense


def test_verifiers_of_other_packages_are_found(tmp_path):
    body = (
        "from mdsd import NaiveVerifier\n"
        "class Mine(NaiveVerifier):\n    '''A verifier of another package.'''\n    name = 'mine'\n"
    )
    install(tmp_path, "plugged", body, "mdsd.verifiers", "mine = plugged:Mine")
    code = (
        "import mdsd; "
        "mdsd.testing.check_verifier(mdsd.get_verifier('mine')); print(mdsd.verifier_names()[-1])"
    )
    done = run(code, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "mine"), done.stderr


@pytest.mark.parametrize(
    ("body", "entry", "reason"),
    [
        ("raise RuntimeError('broken inside')", "bad = plugged:Mine", "broken inside"),
        ("Mine = 3", "bad = plugged:Mine", "not a subclass"),
        ("", "bad = plugged:Mine", "Mine"),
        ("from mdsd import NaiveVerifier as Mine", "rrs = plugged:Mine", "is taken"),
    ],
    ids=["raises", "not-a-verifier", "missing", "name-taken"],
)
def test_broken_verifiers_of_other_packages_warn(tmp_path, body, entry, reason):
    install(tmp_path, "plugged", body, "mdsd.verifiers", entry)
    code = "import mdsd; print(len(mdsd.verifier_names()), type(mdsd.get_verifier('rrs')).__name__)"
    done = run(code, tmp_path)
    right = [str(len(mdsd.verifier_names())), "RRSVerifier"]
    assert (done.returncode, done.stdout.split()) == (0, right), done.stderr
    assert "RuntimeWarning" in done.stderr
    assert reason in done.stderr
