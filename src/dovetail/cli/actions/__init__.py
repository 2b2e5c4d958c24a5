"""What each command does: NAME_command for `dovetail NAME`; a module here is imported when one of its commands is run."""
