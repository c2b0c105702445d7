"""Tests of ACP-SGD's study."""
