//! Tests of the reader of the file.
