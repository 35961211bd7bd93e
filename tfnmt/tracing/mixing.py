"""Measures which positions a sublayer mixes, by changing one input position at a time.

Letters: B sentences, T output positions, S input positions, D d_model.
"""

import numpy as np

from tfnmt.runtime.recorder import Call

SUBLAYER_INPUTS = {
    "MultiHeadAttention.self_attention": ("x",),
    "MultiHeadAttention.call": ("keys", "values"),
    "FeedForward.call": ("x",),
}
"""The sublayers, and the arguments whose positions are changed."""

MIN_CHANGE = 1e-6
"""Smaller changes are rounding errors."""


def measure_mixing(call: Call) -> np.ndarray | None:
    """Measure which output positions of a sublayer depend on which input positions.

    The sublayer runs again with each input position changed. The mask is not consulted.

    Args:
        call: A recorded call.

    Returns:
        [B, T, S], True where output position t depends on input position s. None if the call is
        not one of a sublayer.
    """
    if call.function not in SUBLAYER_INPUTS:
        return None
    arguments = {name: value for name, value in call.arguments.items() if name != "self"}
    method = getattr(call.owner, call.function.rpartition(".")[2])
    before = np.asarray(method(**arguments))
    changed_names = SUBLAYER_INPUTS[call.function]
    length = arguments[changed_names[0]].shape[-2]
    columns = []
    for position in range(length):
        noise = np.random.default_rng(position).standard_normal((before.shape[-1],), "f4")
        changed = {name: _add_noise(arguments[name], position, noise) for name in changed_names}
        after = np.asarray(method(**{**arguments, **changed}))
        columns.append(np.abs(after - before).max(axis=-1) > MIN_CHANGE)  # [B, T]
    return np.stack(columns, axis=-1)


def describe_mixing(function: str, mixing: np.ndarray) -> str:
    """Describe the mixing [B, T, S] of a sublayer: `mix: ...` or `do not mix: ...`."""
    diagonal = np.eye(mixing.shape[1], dtype=bool)
    if mixing.shape[1:] == (1, 1):
        return "cannot mix: there is only one"
    is_cross = function == "MultiHeadAttention.call"  # from the source to the target
    others = mixing if is_cross else mixing & ~diagonal
    if not others.any():
        return "do not mix: each is processed separately"
    if not is_cross and (mixing == np.tri(len(diagonal), dtype=bool)).all():
        return "mix: each affects itself and all later ones"
    affected = "the target" if is_cross else "others"
    places = [", ".join(map(str, np.flatnonzero(row.any(axis=0)))) for row in others]
    return "mix: " + "; ".join(
        f"in sentence {row}, {f'positions {some}' if some else 'none'} affect {affected}"
        for row, some in enumerate(places)
    )


def _add_noise(x: np.ndarray, position: int, noise: np.ndarray) -> np.ndarray:
    """Return x [..., S, D] with noise added at one position."""
    changed = np.array(x)
    changed[..., position, :] += noise[: changed.shape[-1]]
    return changed
