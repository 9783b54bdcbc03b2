"""Text frames that the server sends once a lock is held."""

READ_LOCK_GRANTED = "read_lock_granted"
WRITE_LOCK_GRANTED = "write_lock_granted"
