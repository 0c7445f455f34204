//! The `verbs` room.
