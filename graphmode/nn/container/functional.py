"""The functional forms of this room."""

__all__: list[str] = []
