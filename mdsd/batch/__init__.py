"""Many positions at once: bounds, rates and verifications of whole batches in compiled code."""

from mdsd.batch.acceptance import acceptance_rates
from mdsd.batch.bounds import acceptance_bounds
from mdsd.batch.verification import BatchVerification, verify_batch

__all__ = ["BatchVerification", "acceptance_bounds", "acceptance_rates", "verify_batch"]
