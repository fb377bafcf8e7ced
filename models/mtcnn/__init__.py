"""MTCNN, which finds faces and their landmarks in one graph: `load()` gives it with its weights."""

from .model import MTCNN, Config, Detections, Faces, load

__all__ = ["MTCNN", "Config", "Detections", "Faces", "load"]
