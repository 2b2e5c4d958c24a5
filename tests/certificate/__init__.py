"""Tests of certificates and their checker."""
