"""Boards: devices and links as frozen values, every number with its source."""

from dovetail.platform.describe import describe
from dovetail.platform.device import ASSUMED, Device, Kind, Link, ModelSet, Platform
from dovetail.platform.load import load_platform, platform_from_dict, platform_names, platform_to_dict

__all__ = [
    "ASSUMED", "Device", "Kind", "Link", "ModelSet", "Platform", "describe", "load_platform", "platform_from_dict",
    "platform_names", "platform_to_dict",
]
