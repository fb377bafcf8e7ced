"""`get_speech_timestamps_from_probs` as its package has it, transcribed: Python ifs over a list of probabilities.

Source: `silero_vad`, version 6.2.3 (MIT), at 16 kHz, without its branch to cut at the last silence instead of the
longest. What comes out is laid into a tensor, for the comparison's sake.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

SAMPLING_RATE, CHUNK = 16000, 512


class SpeechTimestamps(nn.Module):
    """`[T]` probabilities -> `[capacity, 2]` int64 starts and ends, 0 beyond their number, and their number."""

    def __init__(self, capacity: int = 32, max_speech_duration_s: float = 2.5):
        super().__init__()
        self.capacity = capacity
        self.max_speech = SAMPLING_RATE * max_speech_duration_s - CHUNK - 2 * 480
        self.threshold, self.neg_threshold = 0.5, 0.35
        self.min_speech, self.min_silence, self.cut_silence, self.pad = 4000, 1600, 1568, 480

    def forward(self, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        length = CHUNK * len(probabilities)
        segments = self.widened(self.segments(probabilities.tolist()), length)
        table = torch.zeros(self.capacity, 2, dtype=torch.int64, device=probabilities.device)
        for row, (start, end) in enumerate(segments[: self.capacity]):
            table[row, 0], table[row, 1] = start, end
        return table, torch.tensor(len(segments), device=probabilities.device)

    def segments(self, probabilities: list[float]) -> list[list[int]]:
        triggered = False
        found: list[list[int]] = []
        start = silence_start = 0
        silences: list[tuple[int, int]] = []
        for i, probability in enumerate(probabilities):
            here = CHUNK * i
            if probability >= self.threshold and silence_start:
                if here - silence_start > self.cut_silence:
                    silences.append((silence_start, here - silence_start))
                silence_start = 0
            if probability >= self.threshold and not triggered:
                triggered, start = True, here
                continue
            if triggered and here - start > self.max_speech:
                if silences:
                    end, silence = max(silences, key=lambda each: each[1])
                    found.append([start, end])
                    start = end + silence
                else:
                    found.append([start, here])
                    triggered = False
                silence_start, silences = 0, []
                if not triggered:
                    continue
            if probability < self.neg_threshold and triggered:
                silence_start = silence_start or here
                if here - silence_start >= self.min_silence:
                    if silence_start - start > self.min_speech:
                        found.append([start, silence_start])
                    triggered, silence_start, silences = False, 0, []
        length = CHUNK * len(probabilities)
        if triggered and length - start > self.min_speech:
            found.append([start, length])
        return found

    def widened(self, found: list[list[int]], length: int) -> list[list[int]]:
        for i, segment in enumerate(found):
            if i == 0:
                segment[0] = max(0, segment[0] - self.pad)
            if i == len(found) - 1:
                segment[1] = min(length, segment[1] + self.pad)
                continue
            silence = found[i + 1][0] - segment[1]
            reach = silence // 2 if silence < 2 * self.pad else self.pad
            segment[1] = min(length, segment[1] + reach)
            found[i + 1][0] = max(0, found[i + 1][0] - reach)
        return found
