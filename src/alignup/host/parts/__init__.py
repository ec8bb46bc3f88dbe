"""A machine cut into equal parts: the cut, the call that binds a rank to its part, and memory near CPUs."""
