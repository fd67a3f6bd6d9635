//! The front doors: the compat and v1 HTTP surfaces.
