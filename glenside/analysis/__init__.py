"""What is known of a program without searching: what is constant, what lives how long, what is copied."""
