"""What a person reads about a build: one HTML file without dependencies, and a trace for Perfetto."""
