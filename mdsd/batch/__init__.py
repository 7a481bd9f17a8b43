"""Many positions at once: bounds and verifications of whole batches in compiled code."""

from mdsd.batch.bounds import acceptance_bounds
from mdsd.batch.verification import BatchVerification, verify_batch

__all__ = ["BatchVerification", "acceptance_bounds", "verify_batch"]
