"""What a person reads about a build: one HTML file without dependencies, and a trace for Perfetto."""

from dovetail.report.collect import collect, describe_design
from dovetail.report.html import render, write_report
from dovetail.report.perfetto import trace, write_trace

__all__ = ["collect", "describe_design", "render", "trace", "write_report", "write_trace"]
