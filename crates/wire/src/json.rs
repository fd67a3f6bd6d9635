//! JSON objects, member by member.
