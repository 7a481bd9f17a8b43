"""Torch tensors, on the CPU and on a GPU if there is one, against the same in a torch loop."""

from dataclasses import dataclass

import numpy as np
import pytest

import mdsd

torch = pytest.importorskip("torch")

ROWS = 64
NUM_DRAFTS = 4
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
TYPES = ["float64", "float32", "bfloat16"]


@dataclass(frozen=True)
class Batch:
    """Rows like the one that `peaked` has, their drafts, and the sorts to measure against."""

    target: torch.Tensor
    draft: torch.Tensor
    ids: torch.Tensor
    uniforms: torch.Tensor
    argsort_seconds: float


@pytest.fixture(scope="session")
def rows(peaked, make_laws):
    rng = np.random.default_rng(1)
    target, draft = make_laws(rng, (ROWS, len(peaked.target)))
    ids = np.array([mdsd.WithoutReplacement(q, NUM_DRAFTS).sample(rng) for q in draft])
    uniforms = rng.random((ROWS, NUM_DRAFTS + 1))
    return [torch.from_numpy(x) for x in (target, draft, ids, uniforms)]


@pytest.fixture(params=[(d, t) for d in DEVICES for t in TYPES], ids="-".join)
def batch(request, rows, peaked):
    device, dtype = request.param
    target, draft = (x.to(device, getattr(torch, dtype)) for x in rows[:2])
    ids, uniforms = (x.to(device) for x in rows[2:])
    return Batch(target, draft, ids, uniforms, ROWS * peaked.argsort_seconds)


def finished(call):
    """Make a call that ends when the device has."""

    def run():
        result = call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return result

    return run


# --- recursive rejection without replacement -----------------------------------------------------


def rrs_loop(target, draft, ids, uniforms):
    """Row by row and draft by draft, in float64."""
    tokens = []
    for p, q, row, numbers in zip(target.double(), draft.double(), ids, uniforms, strict=True):
        p, q = p / p.sum(), q / q.sum()
        for token, uniform in zip(row, numbers[:-1], strict=True):
            if uniform * q[token] < p[token]:
                tokens.append(token)
                break
            left = torch.relu(p - q)
            p = left / left.sum()
            q[token] = 0.0
            q = q / q.sum()
        else:
            sums = p.cumsum(0)
            tokens.append(torch.searchsorted(sums, numbers[-1] * sums[-1], right=True))
    return torch.stack(tokens)


def verify(batch):
    return mdsd.verify_batch(
        batch.target,
        batch.draft,
        batch.ids,
        draft="without_replacement",
        verifier="rrs",
        uniforms=batch.uniforms,
    ).token_ids


def accepted(batch, tokens):
    count = int((batch.ids == tokens[:, None]).any(1).sum())
    return f"accepted {count}/{ROWS}"


def test_rrs(measure, batch):
    measure(finished(lambda: verify(batch)), batch, quality=lambda found: accepted(batch, found))


def test_rrs_in_a_loop(measure, batch):
    arguments = batch.target, batch.draft, batch.ids, batch.uniforms
    ours = verify(batch)

    def quality(found):
        return f"{accepted(batch, found)}, {int((found == ours).sum())} tokens the same"

    measure(finished(lambda: rrs_loop(*arguments)), batch, quality=quality)


# --- bounds with replacement ---------------------------------------------------------------------


def bounds_loop(target, draft):
    """Row by row, from one sort of the ratios, in float64."""
    bounds = []
    for p, q in zip(target.double(), draft.double(), strict=True):
        p, q = p / p.sum(), q / q.sum()
        order = torch.argsort(p / q, descending=True)
        hits = 1.0 - (1.0 - q[order].cumsum(0)).clamp(min=0.0) ** NUM_DRAFTS
        bounds.append((1.0 - p[order].cumsum(0) + hits).min().clamp(max=1.0))
    return torch.stack(bounds)


def bounds(batch):
    return mdsd.acceptance_bounds(batch.target, batch.draft, num_drafts=NUM_DRAFTS)


def mean_bound(found):
    return f"mean bound {float(found.mean()):.6f}"


def test_bounds(measure, batch):
    measure(finished(lambda: bounds(batch)), batch, quality=mean_bound)


def test_bounds_in_a_loop(measure, batch):
    ours = bounds(batch)

    def quality(found):
        return f"{mean_bound(found)}, off by {float(abs(found - ours).max()):.1e}"

    measure(finished(lambda: bounds_loop(batch.target, batch.draft)), batch, quality=quality)


# --- optimal verification on a device, at the price of what else is done there -------------------

VOCAB = 128_256
ON_DEVICE = [device for device in DEVICES if device != "cpu"]
needs_device = pytest.mark.skipif(not ON_DEVICE, reason="needs a GPU")


@pytest.fixture(scope="session")
def long_pair(make_pair):
    return make_pair(VOCAB)


@pytest.fixture(params=[1, 8, 64], ids="B={}".format)
def steps(request, long_pair, make_laws):
    """A batch of decoding steps on the device, in float32 as models give them."""
    rng, count = np.random.default_rng(2), request.param
    target, draft = make_laws(rng, (count, VOCAB))
    kinds = {
        "with_replacement": mdsd.WithReplacement,
        "without_replacement": mdsd.WithoutReplacement,
    }
    ids = {
        name: np.array([make(q, NUM_DRAFTS).sample(rng) for q in draft])
        for name, make in kinds.items()
    }
    device = ON_DEVICE[0]
    rows = [torch.from_numpy(x).to(device, torch.float32) for x in (target, draft)]
    there = {name: torch.from_numpy(x).to(device) for name, x in ids.items()}
    return Steps(*rows, there, long_pair.argsort_seconds)


@dataclass(frozen=True)
class Steps:
    """Rows of one call, and drafts of each kind for them."""

    target: torch.Tensor
    draft: torch.Tensor
    ids: dict
    argsort_seconds: float


def verify_steps(steps, verifier, draft):
    ids, generator = steps.ids[draft], torch.Generator(device=steps.target.device)
    count = mdsd.get_verifier(verifier).num_uniforms(draft_like(draft))
    uniforms = torch.rand((len(ids), count), generator=generator.manual_seed(0), device=ids.device)
    return mdsd.verify_batch(
        steps.target, steps.draft, ids, draft=draft, verifier=verifier, uniforms=uniforms
    )


def draft_like(draft):
    q = np.full(NUM_DRAFTS, 1.0 / NUM_DRAFTS)
    return {
        "with_replacement": mdsd.WithReplacement,
        "without_replacement": mdsd.WithoutReplacement,
    }[draft](q, NUM_DRAFTS)


@needs_device
@pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
@pytest.mark.parametrize("verifier", ["rrs", "optimal"])
def test_steps_on_a_device(measure, steps, verifier, draft):
    rows = len(steps.target)

    def quality(found):
        return f"{verifier}, {draft}: accepted {int((found.accept_index >= 0).sum())}/{rows}"

    measure(finished(lambda: verify_steps(steps, verifier, draft)), steps, quality, per=rows)


@needs_device
def test_softmax_on_a_device(measure, steps):
    """What no decoder can do without: one pass over the logits of the target."""
    logits = steps.target.log()
    measure(
        finished(lambda: torch.softmax(logits, dim=-1)),
        steps,
        quality=lambda found: "softmax of the same rows",
        per=len(logits),
    )
