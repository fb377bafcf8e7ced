"""MTCNN in eager PyTorch: between its three networks, steps whose shapes depend on values.

A transcription of facenet-pytorch 2.6.0 (MIT), `models/utils/detect_face.py` and the sorting of `MTCNN.detect`. What it
takes from torchvision is written out. A crop without a pixel, at which the original fails, is left out with its box.

Source: Zhang et al. 2016, "Joint Face Detection and Alignment using Multi-task Cascaded Convolutional Networks".
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from .reference_networks import Networks, ONet, PNet, RNet, pretrained_weights

__all__ = ["MTCNN", "Networks", "ONet", "PNet", "RNet", "pretrained_weights"]


class MTCNN(Networks):
    """Pictures to faces, padded to `capacity` rows for each picture so that a static graph can be compared.

    `[B, H, W, 3]` uint8 -> a dict of `boxes` `[B, capacity, 4]` in pixels (x1, y1, x2, y2), `probabilities`
    `[B, capacity]`, `landmarks` `[B, capacity, 5, 2]` (eyes, nose, corners of the mouth; x, y) and `valid`
    `[B, capacity]`, the largest face first; `counts` `[B, 4]`, the cells that PNet takes for faces, then the boxes that
    RNet, ONet and the caller are given; and `overflow` `[B, 4]`, which stage had no room: only faces can lack it here.
    """

    def __init__(
        self,
        capacity: int = 16,
        min_face_size: int = 20,
        thresholds: tuple[float, float, float] = (0.6, 0.7, 0.7),
        factor: float = 0.709,
    ):
        super().__init__()
        self.capacity = capacity
        self.min_face_size = min_face_size
        self.thresholds = thresholds
        self.factor = factor

    def forward(self, images: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        boxes, image_inds, points, counts = self.detect_face(images)
        rows = []
        for image in range(len(images)):
            mine = image_inds == image
            box, point = boxes[mine][: self.capacity], points[mine][: self.capacity]
            largest = torch.argsort((box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1]), descending=True)
            room = self.capacity - len(largest)
            rows.append(
                {
                    "boxes": pad(box[largest, :4], (0, 0, 0, room)),
                    "probabilities": pad(box[largest, 4], (0, room)),
                    "landmarks": pad(point[largest], (0, 0, 0, 0, 0, room)),
                    "valid": torch.arange(self.capacity, device=images.device) < len(largest),
                }
            )
        rooms = counts.new_tensor([2**30, 2**30, 2**30, self.capacity])
        told = {"counts": counts, "overflow": counts > rooms}
        return {name: torch.stack([row[name] for row in rows]) for name in rows[0]} | told

    def detect_face(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Boxes and scores `[N, 5]` of all pictures, best first, the picture of each, landmarks, counts."""
        size = len(images)
        imgs = images.permute(0, 3, 1, 2).type(self.pnet.conv1.weight.dtype)
        h, w = imgs.shape[2:4]
        m = 12.0 / self.min_face_size
        minl = min(h, w) * m
        scale_i = m
        scales = []
        while minl >= 12:
            scales.append(scale_i)
            scale_i = scale_i * self.factor
            minl = minl * self.factor

        # First stage
        all_boxes, all_inds, candidates = [], [], []
        for scale in scales:
            im_data = imresample(imgs, (int(h * scale + 1), int(w * scale + 1)))
            im_data = (im_data - 127.5) * 0.0078125
            reg, probs = self.pnet(im_data)
            boxes, image_inds = generate_bounding_box(reg, probs[:, 1], scale, self.thresholds[0])
            candidates.append(torch.bincount(image_inds, minlength=size))
            pick = batched_nms(boxes[:, :4], boxes[:, 4], image_inds, 0.5)
            all_boxes.append(boxes[pick])
            all_inds.append(image_inds[pick])
        boxes, image_inds = torch.cat(all_boxes), torch.cat(all_inds)
        counts = [torch.stack(candidates).sum(0)]

        pick = batched_nms(boxes[:, :4], boxes[:, 4], image_inds, 0.7)
        boxes, image_inds = boxes[pick], image_inds[pick]
        regw = boxes[:, 2] - boxes[:, 0]
        regh = boxes[:, 3] - boxes[:, 1]
        qq1 = boxes[:, 0] + boxes[:, 5] * regw
        qq2 = boxes[:, 1] + boxes[:, 6] * regh
        qq3 = boxes[:, 2] + boxes[:, 7] * regw
        qq4 = boxes[:, 3] + boxes[:, 8] * regh
        boxes = rerec(torch.stack([qq1, qq2, qq3, qq4, boxes[:, 4]], 1))

        # Second stage
        if len(boxes) > 0:
            im_data, inside = crops(imgs, boxes, image_inds, 24)
            boxes, image_inds = boxes[inside], image_inds[inside]
        counts.append(torch.bincount(image_inds, minlength=size))
        if len(boxes) > 0:
            mv, prob = self.rnet(im_data)
            score = prob[:, 1]
            ipass = score > self.thresholds[1]
            boxes = torch.cat((boxes[ipass, :4], score[ipass].unsqueeze(1)), dim=1)
            image_inds, mv = image_inds[ipass], mv[ipass]
            pick = batched_nms(boxes[:, :4], boxes[:, 4], image_inds, 0.7)
            boxes, image_inds, mv = boxes[pick], image_inds[pick], mv[pick]
            boxes = rerec(bbreg(boxes, mv))

        # Third stage
        points = boxes.new_zeros((0, 5, 2))
        if len(boxes) > 0:
            im_data, inside = crops(imgs, boxes, image_inds, 48)
            boxes, image_inds = boxes[inside], image_inds[inside]
        counts.append(torch.bincount(image_inds, minlength=size))
        if len(boxes) > 0:
            mv, points, prob = self.onet(im_data)
            score = prob[:, 1]
            ipass = score > self.thresholds[2]
            boxes = torch.cat((boxes[ipass, :4], score[ipass].unsqueeze(1)), dim=1)
            image_inds, mv, points = image_inds[ipass], mv[ipass], points[ipass]
            w_i = boxes[:, 2:3] - boxes[:, 0:1] + 1
            h_i = boxes[:, 3:4] - boxes[:, 1:2] + 1
            points_x = w_i * points[:, :5] + boxes[:, 0:1] - 1
            points_y = h_i * points[:, 5:10] + boxes[:, 1:2] - 1
            points = torch.stack((points_x, points_y), 2)
            boxes = bbreg(boxes, mv)
            pick = batched_nms_min(boxes[:, :4], boxes[:, 4], image_inds, 0.7)
            boxes, image_inds, points = boxes[pick], image_inds[pick], points[pick]
        counts.append(torch.bincount(image_inds, minlength=size))
        return boxes, image_inds, points, torch.stack(counts, 1).int()


def imresample(img: Tensor, sz: tuple[int, int]) -> Tensor:
    return interpolate(img, size=sz, mode="area")


def generate_bounding_box(reg: Tensor, probs: Tensor, scale: float, thresh: float) -> tuple[Tensor, Tensor]:
    """Cells whose probability reaches the threshold, as boxes of the picture: `[N, 9]`, box, score, corrections."""
    stride = 2
    cellsize = 12
    reg = reg.permute(1, 0, 2, 3)
    mask = probs >= thresh
    mask_inds = mask.nonzero()
    image_inds = mask_inds[:, 0]
    score = probs[mask]
    reg = reg[:, mask].permute(1, 0)
    bb = mask_inds[:, 1:].type(reg.dtype).flip(1)
    q1 = ((stride * bb + 1) / scale).floor()
    q2 = ((stride * bb + cellsize - 1 + 1) / scale).floor()
    return torch.cat([q1, q2, score.unsqueeze(1), reg], dim=1), image_inds


def crops(imgs: Tensor, boxes: Tensor, image_inds: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Every box cut out and resized to `[N, 3, size, size]`, and which boxes hold a pixel."""
    h, w = imgs.shape[2:4]
    box = boxes[:, :4].trunc().int()
    x, y = box[:, 0].clamp(min=1), box[:, 1].clamp(min=1)
    ex, ey = box[:, 2].clamp(max=w), box[:, 3].clamp(max=h)
    inside = (ey > y - 1) & (ex > x - 1)
    cut = [
        imresample(imgs[k, :, top - 1 : bottom, left - 1 : right].unsqueeze(0), (size, size))
        for k, top, bottom, left, right in torch.stack([image_inds, y, ey, x, ex], 1)[inside].tolist()
    ]
    im_data = torch.cat(cut, dim=0) if cut else imgs.new_zeros((0, 3, size, size))
    return (im_data - 127.5) * 0.0078125, inside


def bbreg(boxes: Tensor, reg: Tensor) -> Tensor:
    """Boxes corrected: each edge moved by a share of the width or height."""
    w = boxes[:, 2] - boxes[:, 0] + 1
    h = boxes[:, 3] - boxes[:, 1] + 1
    b1 = boxes[:, 0] + reg[:, 0] * w
    b2 = boxes[:, 1] + reg[:, 1] * h
    b3 = boxes[:, 2] + reg[:, 2] * w
    b4 = boxes[:, 3] + reg[:, 3] * h
    return torch.stack([b1, b2, b3, b4, boxes[:, 4]], 1)


def rerec(boxes: Tensor) -> Tensor:
    """Boxes made square about their centres, as long as the longer side."""
    h = boxes[:, 3] - boxes[:, 1]
    w = boxes[:, 2] - boxes[:, 0]
    side = torch.max(w, h)
    x = boxes[:, 0] + w * 0.5 - side * 0.5
    y = boxes[:, 1] + h * 0.5 - side * 0.5
    return torch.stack([x, y, x + side, y + side, boxes[:, 4]], 1)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """`torchvision.ops.batched_nms`: `_batched_nms_vanilla` for many boxes, `_batched_nms_coordinate_trick` for few."""
    if boxes.numel() > (4000 if boxes.device.type == "cpu" else 20000):
        keep_mask = torch.zeros_like(scores, dtype=torch.bool)
        for class_id in torch.unique(idxs):
            curr_indices = torch.where(idxs == class_id)[0]
            keep_mask[curr_indices[nms(boxes[curr_indices], scores[curr_indices], iou_threshold)]] = True
        keep_indices = torch.where(keep_mask)[0]
        return keep_indices[scores[keep_indices].sort(descending=True)[1]]
    if boxes.numel() == 0:
        return torch.empty((0,), dtype=torch.int64, device=boxes.device)
    offsets = idxs.to(boxes) * (boxes.max() + 1)
    return nms(boxes + offsets[:, None], scores, iou_threshold)


def batched_nms_min(boxes: Tensor, scores: Tensor, idxs: Tensor, threshold: float) -> Tensor:
    """`batched_nms_numpy` with the method "Min": the intersection over the smaller area; x2, y2 are inside the box."""
    if boxes.numel() == 0:
        return torch.empty((0,), dtype=torch.int64, device=boxes.device)
    offsets = idxs.to(boxes) * (boxes.max() + 1)
    return nms(boxes + offsets[:, None], scores, threshold, over_min=True)


def nms(boxes: Tensor, scores: Tensor, threshold: float, over_min: bool = False) -> Tensor:
    """`torchvision/csrc/ops/cpu/nms_kernel.cpp`, its inner loop as one vector; or `nms_numpy` of facenet-pytorch."""
    last = 1 if over_min else 0
    x1, y1, x2, y2 = boxes.unbind(1)
    area = (x2 - x1 + last) * (y2 - y1 + last)
    order = scores.sort(stable=True, descending=True)[1]
    keep = []
    while len(order):
        i, rest = order[0], order[1:]
        keep.append(i)
        w = (torch.minimum(x2[i], x2[rest]) - torch.maximum(x1[i], x1[rest]) + last).clamp(min=0)
        h = (torch.minimum(y2[i], y2[rest]) - torch.maximum(y1[i], y1[rest]) + last).clamp(min=0)
        inter = w * h
        shared = inter / (torch.minimum(area[i], area[rest]) if over_min else area[i] + area[rest] - inter)
        order = rest[~(shared > threshold)]
    return torch.stack(keep) if keep else order
