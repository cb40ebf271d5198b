"""Retraining that can be left alone: a challenger is trained, compared, and promoted by rule."""
