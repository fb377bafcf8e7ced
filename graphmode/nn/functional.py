"""The functional forms, as `torch.nn.functional` names them; weights are laid out as the layers here hold them."""

from .activation import functional as _activation
from .activation.functional import *  # noqa: F403
from .attention import functional as _attention
from .attention.functional import *  # noqa: F403
from .container import functional as _container
from .container.functional import *  # noqa: F403
from .conv import functional as _conv
from .conv.functional import *  # noqa: F403
from .distance import functional as _distance
from .distance.functional import *  # noqa: F403
from .dropout import functional as _dropout
from .dropout.functional import *  # noqa: F403
from .embedding import functional as _embedding
from .embedding.functional import *  # noqa: F403
from .linear import functional as _linear
from .linear.functional import *  # noqa: F403
from .loss import functional as _loss
from .loss.functional import *  # noqa: F403
from .norm import functional as _norm
from .norm.functional import *  # noqa: F403
from .padding import functional as _padding
from .padding.functional import *  # noqa: F403
from .pooling import functional as _pooling
from .pooling.functional import *  # noqa: F403
from .recurrent import functional as _recurrent
from .recurrent.functional import *  # noqa: F403
from .resize import functional as _resize
from .resize.functional import *  # noqa: F403
from .shape import functional as _shape
from .shape.functional import *  # noqa: F403

__all__ = [
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
