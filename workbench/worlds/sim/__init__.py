"""A simulated policy: prompts with latent skill, without a model."""
