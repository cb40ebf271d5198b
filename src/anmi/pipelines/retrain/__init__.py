"""Retraining that can be left alone: a challenger is trained, compared with the champion, and promoted by rule."""
