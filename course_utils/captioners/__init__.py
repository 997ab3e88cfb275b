"""Captioners, one file a paper, behind one interface."""

from course_utils.captioners.attention import AttentionCaptioner
from course_utils.captioners.captioning_rnn import CaptioningRNN
from course_utils.captioners.interface import Captioner, reorder
from course_utils.captioners.show_and_tell import ShowTellLSTM, ShowTellRNN

__all__ = ["AttentionCaptioner", "Captioner", "CaptioningRNN", "ShowTellLSTM", "ShowTellRNN", "reorder"]
