"""ydl for TensorFlow: the one package of ydl that imports it.

make_tf_dataset is for users. The rest serves ydl's storages: source.py reads the dataset that a
user wants cached, spec.py translates its structure, feed.py and routes.py give its records back.
"""

from ydl.tensorflow.feed import make_tf_dataset
from ydl.tensorflow.source import (
    Source,
    call_outside_function_graph,
    open_source,
    session_config,
)

__all__ = [
    "Source",
    "call_outside_function_graph",
    "make_tf_dataset",
    "open_source",
    "session_config",
]
