"""Boxes, non-maximum suppression and regions of a feature map."""
