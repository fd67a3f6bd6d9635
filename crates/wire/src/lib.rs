//! The grammar of the in.php/res.php protocol, both directions, pure.
