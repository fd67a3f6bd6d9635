//! What must always hold, by number.
