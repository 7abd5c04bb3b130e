"""Runs programs in SPU between two processes of this machine."""
