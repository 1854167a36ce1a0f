"""Compiled inner loops: gradients, optimiser steps, updates, frames, minibatches.

The *significance split* divides an update under ISP into values that are large enough to be sent and the residual,
which stays with the worker. The *frame codec* encodes an update as bytes, a frame, and decodes it.

::

    factorization.pyx linear.pyx products.pyx   gradients and losses: matrix factorisation, linear models,
                                                models with several columns (softmax, k-means)
    optimize.pyx      optimiser steps, with the significance split in the same pass; significance.py has the residual
    update.pyx        adds updates to the parameters
    codec.pyx         the frame codec; frame_header.py has the layout of a frame
    merge.pyx         sums frames
    checksums.pyx     CRC32C, and the checksum of frames
    cutting.pyx       sorts ratings into minibatches
    authenticate.pyx  the authenticator of frames
    resp.pyx          parses Redis replies; it is here because it is compiled
    reference.py reference_frames.py reference_products.py   the same functions in NumPy, for the tests to compare with

The compiled functions check shapes, types and index bounds once, at their Python interface, and run without the GIL.
Each loop is compiled for several instruction sets, and one is chosen at run time. On one machine results are identical
from run to run; between instruction sets they may differ in the last bits. Nothing here does I/O.
"""

try:
    from .authenticate import poly1305
    from .checksums import crc32c, frame_checksum
    from .codec import (
        apply_frame,
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
    "frame_checksum",
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
    "poly1305",
    "read_header",
    "rows_product",
    "sgd_update",
    "snapshot_rows",
    "split_significant",
    "subtract_sent",
    "transposed_product",
]
