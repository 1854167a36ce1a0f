"""Compiled inner loops: gradients, optimiser steps, the significance split, the frame codec, the sorting of ratings.

:mod:`mlless_nb.kernels.reference` has each function in plain NumPy, for the tests to compare with. The compiled
functions check shapes, types and index bounds once, at their Python interface, and run without the GIL. Each loop is
compiled for several instruction sets, and one is chosen at run time. On one machine results are identical from run to
run; between instruction sets they may differ in the last bits. ``resp`` parses Redis replies; it is here because it is
compiled. Nothing here does I/O or knows about workers.
"""

try:
    from .codec import (
        apply_frame,
        crc32c,
        decode_frame,
        encode_sparse,
        encode_update,
        read_header,
    )
    from .cutting import cut_ratings
    from .factorization import pmf_gradient, pmf_predict, pmf_sgd_pass, pmf_squared_error
    from .frame_header import FrameHeader
    from .linear import linear_gradient, linear_loss, linear_margins
    from .merge import merge_frames, subtract_sent
    from .optimize import (
        adagrad_update,
        adam_update,
        flush_residual,
        ftrl_update,
        momentum_update,
        sgd_update,
        split_significant,
    )
    from .products import rows_product, transposed_product
    from .significance import SignificanceSplit
    from .update import apply_rows, extract_delta, snapshot_rows
except ModuleNotFoundError as error:
    if not (error.name or "").startswith(__name__):
        raise
    raise ImportError(
        f"mlless_nb's compiled kernels are missing ({error.name}): "
        "run `pip install mlless_nb` in the function's runtime"
    ) from error

__all__ = [
    "FrameHeader",
    "SignificanceSplit",
    "adagrad_update",
    "adam_update",
    "apply_frame",
    "apply_rows",
    "crc32c",
    "cut_ratings",
    "decode_frame",
    "encode_sparse",
    "encode_update",
    "extract_delta",
    "flush_residual",
    "ftrl_update",
    "linear_gradient",
    "linear_loss",
    "linear_margins",
    "merge_frames",
    "momentum_update",
    "pmf_gradient",
    "pmf_predict",
    "pmf_sgd_pass",
    "pmf_squared_error",
    "read_header",
    "rows_product",
    "sgd_update",
    "snapshot_rows",
    "split_significant",
    "subtract_sent",
    "transposed_product",
]
