resource "aws_dynamodb_table" "solvegate" {
  name         = "{table}"
{billing}
  hash_key     = "PK"
  range_key    = "SK"

  attribute {
    name = "PK"
    type = "S"
  }

  attribute {
    name = "SK"
    type = "B"
  }

  ttl {
    attribute_name = "gc_at"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }
}
