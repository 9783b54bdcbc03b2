"""Names of the storage types in a coordinator's urls."""

AWS_STORAGE = "aws_storage"
GCS_STORAGE = "gcs_storage"
