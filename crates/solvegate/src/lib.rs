//! A gateway between your workers and a paid solving service: paid once, delivered once, explained.
