import numpy as np
from numpy.typing import NDArray

def cut_ratings(
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    ratings: NDArray[np.float32],
    taken: NDArray[np.int64],
    n_users: int,
    n_items: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]: ...
