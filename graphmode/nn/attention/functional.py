"""The functional forms of this room."""

from .multi_head import multi_head_attention_forward
from .scaled_dot_product import scaled_dot_product_attention

__all__: list[str] = ["multi_head_attention_forward", "scaled_dot_product_attention"]
