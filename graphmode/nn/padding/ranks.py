"""`torch.nn`'s padding layers for sequences, images and volumes."""

from .kinds import CircularPad, ConstantPad, ReflectionPad, ReplicationPad, ZeroPad


class CircularPad1d(CircularPad):
    """Pads sequences with the other end of the axis.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CircularPad1d.html

    Args:
      padding: one integer for all ends, or (left, right); a negative one takes away.
      data_format: channels last, `[B, L, C]`, or `"NCL"`; the batch axis is optional.

    Raises:
      ValueError: where the input has other axes, or `padding` goes around more than once.

    Example:
      >>> CircularPad1d(2)(jnp.ones((1, 4, 3))).shape
      (1, 8, 3)
    """

    spatial = 1


class CircularPad2d(CircularPad):
    """Pads images with the other end of the axis.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CircularPad2d.html

    Args:
      padding: one integer for all ends, or (left, right, top, bottom); a negative one takes away.
      data_format: channels last, `[B, H, W, C]`, or `"NCHW"`; the batch axis is optional.

    Raises:
      ValueError: where the input has other axes, or `padding` goes around more than once.

    Example:
      >>> CircularPad2d(2)(jnp.ones((1, 4, 5, 3))).shape
      (1, 8, 9, 3)
    """

    spatial = 2


class CircularPad3d(CircularPad):
    """Pads volumes with the other end of the axis.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CircularPad3d.html

    Args:
      padding: one integer for all ends, or (left, right, top, bottom, front, back); a negative one takes away.
      data_format: channels last, `[B, D, H, W, C]`, or `"NCDHW"`; the batch axis is optional.

    Raises:
      ValueError: where the input has other axes, or `padding` goes around more than once.

    Example:
      >>> CircularPad3d(2)(jnp.ones((1, 4, 5, 6, 3))).shape
      (1, 8, 9, 10, 3)
    """

    spatial = 3


class ConstantPad1d(ConstantPad):
    """Pads sequences with a number.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConstantPad1d.html

    Args:
      padding: one integer for all ends, or (left, right); a negative one takes away.
      value: that is added, in the dtype of the input.
      data_format: channels last, `[..., L, C]`, or `"NCL"`; any axes may come before them.

    Raises:
      ValueError: where the input has other axes, or `padding` takes away more than there is.

    Example:
      >>> ConstantPad1d(1, 0.5)(jnp.ones((1, 4, 3))).shape
      (1, 6, 3)
    """

    spatial = 1


class ConstantPad2d(ConstantPad):
    """Pads images with a number.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConstantPad2d.html

    Args:
      padding: one integer for all ends, or (left, right, top, bottom); a negative one takes away.
      value: that is added, in the dtype of the input.
      data_format: channels last, `[..., H, W, C]`, or `"NCHW"`; any axes may come before them.

    Raises:
      ValueError: where the input has other axes, or `padding` takes away more than there is.

    Example:
      >>> ConstantPad2d(1, 0.5)(jnp.ones((1, 4, 5, 3))).shape
      (1, 6, 7, 3)
    """

    spatial = 2


class ConstantPad3d(ConstantPad):
    """Pads volumes with a number.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConstantPad3d.html

    Args:
      padding: one integer for all ends, or (left, right, top, bottom, front, back); a negative one takes away.
      value: that is added, in the dtype of the input.
      data_format: channels last, `[..., D, H, W, C]`, or `"NCDHW"`; any axes may come before them.

    Raises:
      ValueError: where the input has other axes, or `padding` takes away more than there is.

    Example:
      >>> ConstantPad3d(1, 0.5)(jnp.ones((1, 4, 5, 6, 3))).shape
      (1, 6, 7, 8, 3)
    """

    spatial = 3


class ReflectionPad1d(ReflectionPad):
    """Pads sequences with its mirror image, the end itself left out.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReflectionPad1d.html

    Args:
      padding: one integer for all ends, or (left, right); a negative one takes away.
      data_format: channels last, `[B, L, C]`, or `"NCL"`; the batch axis is optional.

    Raises:
      ValueError: where the input has other axes, or `padding` is as long as an axis.

    Example:
      >>> ReflectionPad1d(1)(jnp.ones((1, 4, 3))).shape
      (1, 6, 3)
    """

    spatial = 1


class ReflectionPad2d(ReflectionPad):
    """Pads images with its mirror image, the end itself left out.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReflectionPad2d.html

    Args:
      padding: one integer for all ends, or (left, right, top, bottom); a negative one takes away.
      data_format: channels last, `[B, H, W, C]`, or `"NCHW"`; the batch axis is optional.

    Raises:
      ValueError: where the input has other axes, or `padding` is as long as an axis.

    Example:
      >>> ReflectionPad2d(1)(jnp.ones((1, 4, 5, 3))).shape
      (1, 6, 7, 3)
    """

    spatial = 2


class ReflectionPad3d(ReflectionPad):
    """Pads volumes with its mirror image, the end itself left out.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReflectionPad3d.html

    Args:
      padding: one integer for all ends, or (left, right, top, bottom, front, back); a negative one takes away.
      data_format: channels last, `[B, D, H, W, C]`, or `"NCDHW"`; the batch axis is optional.

    Raises:
      ValueError: where the input has other axes, or `padding` is as long as an axis.

    Example:
      >>> ReflectionPad3d(1)(jnp.ones((1, 4, 5, 6, 3))).shape
      (1, 6, 7, 8, 3)
    """

    spatial = 3


class ReplicationPad1d(ReplicationPad):
    """Pads sequences with copies of its end.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReplicationPad1d.html

    Args:
      padding: one integer for all ends, or (left, right); a negative one takes away.
      data_format: channels last, `[B, L, C]`, or `"NCL"`; the batch axis is optional.

    Raises:
      ValueError: where the input has other axes, or `padding` takes away more than there is.

    Example:
      >>> ReplicationPad1d(2)(jnp.ones((1, 4, 3))).shape
      (1, 8, 3)
    """

    spatial = 1


class ReplicationPad2d(ReplicationPad):
    """Pads images with copies of its end.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReplicationPad2d.html

    Args:
      padding: one integer for all ends, or (left, right, top, bottom); a negative one takes away.
      data_format: channels last, `[B, H, W, C]`, or `"NCHW"`; the batch axis is optional.

    Raises:
      ValueError: where the input has other axes, or `padding` takes away more than there is.

    Example:
      >>> ReplicationPad2d(2)(jnp.ones((1, 4, 5, 3))).shape
      (1, 8, 9, 3)
    """

    spatial = 2


class ReplicationPad3d(ReplicationPad):
    """Pads volumes with copies of its end.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReplicationPad3d.html

    Args:
      padding: one integer for all ends, or (left, right, top, bottom, front, back); a negative one takes away.
      data_format: channels last, `[B, D, H, W, C]`, or `"NCDHW"`; the batch axis is optional.

    Raises:
      ValueError: where the input has other axes, or `padding` takes away more than there is.

    Example:
      >>> ReplicationPad3d(2)(jnp.ones((1, 4, 5, 6, 3))).shape
      (1, 8, 9, 10, 3)
    """

    spatial = 3


class ZeroPad1d(ZeroPad):
    """Pads sequences with zeros.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ZeroPad1d.html

    Args:
      padding: one integer for all ends, or (left, right); a negative one takes away.
      data_format: channels last, `[..., L, C]`, or `"NCL"`; any axes may come before them.

    Raises:
      ValueError: where the input has other axes, or `padding` takes away more than there is.

    Example:
      >>> ZeroPad1d(2)(jnp.ones((1, 4, 3))).shape
      (1, 8, 3)
    """

    spatial = 1


class ZeroPad2d(ZeroPad):
    """Pads images with zeros.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ZeroPad2d.html

    Args:
      padding: one integer for all ends, or (left, right, top, bottom); a negative one takes away.
      data_format: channels last, `[..., H, W, C]`, or `"NCHW"`; any axes may come before them.

    Raises:
      ValueError: where the input has other axes, or `padding` takes away more than there is.

    Example:
      >>> ZeroPad2d(2)(jnp.ones((1, 4, 5, 3))).shape
      (1, 8, 9, 3)
    """

    spatial = 2


class ZeroPad3d(ZeroPad):
    """Pads volumes with zeros.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ZeroPad3d.html

    Args:
      padding: one integer for all ends, or (left, right, top, bottom, front, back); a negative one takes away.
      data_format: channels last, `[..., D, H, W, C]`, or `"NCDHW"`; any axes may come before them.

    Raises:
      ValueError: where the input has other axes, or `padding` takes away more than there is.

    Example:
      >>> ZeroPad3d(2)(jnp.ones((1, 4, 5, 6, 3))).shape
      (1, 8, 9, 10, 3)
    """

    spatial = 3
