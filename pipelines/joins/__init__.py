"""The join job: a Beam pipeline that computes joined columns by buckets of keys on many machines"""
