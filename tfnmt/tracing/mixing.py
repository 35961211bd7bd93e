"""Where positions mix: a sublayer is run again with one position changed after another."""

import numpy as np

from tfnmt.tracing.recorder import Call

MIXERS = {
    "MultiHeadAttention.look_around": ("x",),
    "MultiHeadAttention.call": ("keys", "values"),
    "FeedForward.call": ("x",),
}
"""The sublayers, and what of their input has the positions to change."""

LEAST = 1e-6
"""A smaller change is rounding."""


def mixing(call: Call) -> np.ndarray | None:
    """Whether position t of what comes out hangs on position s of what goes in, [B, T, S].

    None where the call is none of a sublayer. It is tried out, not read off the mask.
    """
    if call.function not in MIXERS:
        return None
    arguments = {name: value for name, value in call.arguments.items() if name != "self"}
    method = getattr(call.owner, call.function.rpartition(".")[2])
    before = np.asarray(method(**arguments))
    changed_names = MIXERS[call.function]
    length = arguments[changed_names[0]].shape[-2]
    columns = []
    for position in range(length):
        noise = np.random.default_rng(position).standard_normal((before.shape[-1],), "f4")
        changed = {name: _changed(arguments[name], position, noise) for name in changed_names}
        after = np.asarray(method(**{**arguments, **changed}))
        columns.append(np.abs(after - before).max(axis=-1) > LEAST)  # [B, T]
    return np.stack(columns, axis=-1)


def describe_mixing(function: str, mixing: np.ndarray) -> str:
    """The same of a sublayer in words: `mix: ...` or `do not mix: ...`."""
    own = np.eye(mixing.shape[1], dtype=bool)
    if mixing.shape[1:] == (1, 1):
        return "cannot mix: there is but one"
    across = function == "MultiHeadAttention.call"  # from the source to the target
    others = mixing if across else mixing & ~own
    if not others.any():
        return "do not mix: each is worked on alone"
    if not across and (mixing == np.tri(len(own), dtype=bool)).all():
        return "mix: what stands at one reaches itself and those after it"
    reached = "the target" if across else "others"
    places = [", ".join(map(str, np.flatnonzero(row.any(axis=0)))) for row in others]
    return "mix: " + "; ".join(
        f"in sentence {row} what stands at {some or 'none'} reaches {reached}"
        for row, some in enumerate(places)
    )


def _changed(x: np.ndarray, position: int, noise: np.ndarray) -> np.ndarray:
    """[..., S, D] with noise added at a position."""
    changed = np.array(x)
    changed[..., position, :] += noise[: changed.shape[-1]]
    return changed
