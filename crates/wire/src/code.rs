//! The codes of in.php and res.php by name. What they mean for a solve is in `domain::retry`.
