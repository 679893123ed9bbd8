// Choice of tokens. Twin: crates/rf-kernels/src/params/sampling.rs.
//
// ids, values and stamps are in host memory. stamps[r] = *stamp (params/step.h) after the results
// of row r.
#pragma once

// ids[r] = the best token of row r: the largest logit, and the lowest id among equal logits.
struct RfArgmaxParams {
    const float *logits;         // [rows, vocab_size]
    unsigned *ids;               // [rows]
    float *values;               // [rows]: logits
    unsigned long long *scratch; // [rows, parts]
    unsigned *counters;          // [rows], 0 before and after
    const unsigned *stamp;
    unsigned *stamps;            // [rows]
    unsigned rows;
    unsigned vocab_size;
    unsigned parts; // workgroups per row
    unsigned reserved;
};

// The k best tokens of each row in order, and their probabilities: softmax(logits / temperature)
// over the k tokens.
struct RfTopKParams {
    const float *logits;         // [rows, vocab_size]
    unsigned *ids;               // [rows, k]
    float *values;               // [rows, k]: logits
    float *probabilities;        // [rows, k]
    unsigned long long *scratch; // [rows, parts, k]
    unsigned *counters;          // [rows], 0 before and after
    const unsigned *stamp;
    unsigned *stamps;            // [rows]
    unsigned rows;
    unsigned vocab_size;
    unsigned k;     // at most 256 and vocab_size
    unsigned parts; // workgroups per row, at most 64, each with at most 16384 logits
    float temperature; // above 0
    unsigned reserved;
};
