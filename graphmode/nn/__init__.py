"""Layers that mean exactly what `torch.nn`'s of the same name mean, as NNX modules; `functional` has functions."""

from . import activation as _activation
from . import attention as _attention
from . import container as _container
from . import conv as _conv
from . import distance as _distance
from . import dropout as _dropout
from . import embedding as _embedding
from . import functional, init, utils
from . import linear as _linear
from . import loss as _loss
from . import norm as _norm
from . import padding as _padding
from . import pooling as _pooling
from . import recurrent as _recurrent
from . import resize as _resize
from . import shape as _shape
from .activation import *  # noqa: F403
from .attention import *  # noqa: F403
from .autocast import autocast
from .container import *  # noqa: F403
from .conv import *  # noqa: F403
from .distance import *  # noqa: F403
from .dropout import *  # noqa: F403
from .embedding import *  # noqa: F403
from .layer import Layer
from .linear import *  # noqa: F403
from .loss import *  # noqa: F403
from .norm import *  # noqa: F403
from .padding import *  # noqa: F403
from .pooling import *  # noqa: F403
from .recurrent import *  # noqa: F403
from .refused import why_refused as _why_refused
from .resize import *  # noqa: F403
from .shape import *  # noqa: F403

__all__ = [
    "Layer",
    "autocast",
    "functional",
    "init",
    "utils",
    *_activation.__all__,
    *_attention.__all__,
    *_container.__all__,
    *_conv.__all__,
    *_distance.__all__,
    *_dropout.__all__,
    *_embedding.__all__,
    *_linear.__all__,
    *_loss.__all__,
    *_norm.__all__,
    *_padding.__all__,
    *_pooling.__all__,
    *_recurrent.__all__,
    *_resize.__all__,
    *_shape.__all__,
]


def __getattr__(name: str):
    raise AttributeError(_why_refused(name))
