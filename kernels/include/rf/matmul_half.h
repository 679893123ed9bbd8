// Matrix × matrix on f16 matrix units, for every format: out[token][row] = Σ_c w[row][c] ·
// x[token][c]. Weights become f16 once per tile (halves.h), activations are f16 already, sums are
// f32.
//
// A workgroup computes tiles of Shape::ROWS × Shape::TOKENS. It processes the columns in stages of
// two blocks of 32: each thread loads FETCH_ROWS blocks of weights (of floats on NVIDIA quarters),
// unpacks them to LDS, and copies Shape::FETCH_TOKENS pieces of 16 bytes of activations.
// Memory is read a stage ahead (NVIDIA: activations two stages ahead, by asynchronous copies),
// while the current stage is multiplied.
//
// On NVIDIA's compute capability 9.0 (`wgmma`) four waves multiply 64 rows with all tokens of the
// tile. The matrix unit reads both operands from LDS while the waves unpack the next weights, which
// are loaded two stages before. A tile of 128 × 256 reads 32 KiB of activations and 4.5 (Q4_K) to
// 16 KiB (F16) of weights per stage, for 1024 cycles of the matrix unit. Weights of F16 need no
// unpacking if the activations have their columns in the same order: then four more waves copy both
// operands for wide tiles, four stages ahead, and the others only multiply. The matrix unit, the
// ends of tiles and the power of the card limit the speed of these.
//
// Per stage and wave of 64 × 32 on RDNA: 32 multiplications of 16 × 16 × 16, and for each of them
// 1.5 operations that unpack weights (Q4_K) and one that reads LDS. The matrix unit limits the
// speed.
//
// Tiles rarely fill a device evenly: 384 tiles on 264 places are two rounds, the second of which is
// half empty. So the grid may have as many workgroups as the device has places. Each computes a
// tile per round, and an equal share of the stages of the tiles that are left (Osama et al.,
// "Stream-K", 2023), or some of them an equal part of a tile. A tile that several workgroups share
// is finished by the last of them to arrive, which adds the sums in the order of the columns; with
// `wgmma`, two that have half of the columns each finish half of the tokens each.
//
// Gate and up of a gated unit share tiles, in which 16 rows of gate and the same 16 of up take
// turns. The epilogue writes the gated unit as the f16 operand of the next matmul.
//
// The experts of a mixture are one launch, with a workgroup for each tile. The tokens of a tile are
// slots of one expert, whose rows of x are gathered while they are loaded. How many tiles there are
// is known on the device only: workgroups without a tile leave at once. Workgroups that follow one
// another have tiles of the same slots, so the weights of an expert and its rows of x stay in L2
// until they have been read for the last time. Operands are not copied by waves of their own.
#pragma once

#include "rf/copy_async.h"
#include "rf/halves.h"
#include "rf/matmul_half_output.h"
#include "rf/wgmma.h"

#if RF_MATRIX_UNIT

namespace rf {

template <u32 WAVE_ROWS_, u32 WAVE_TOKENS_, u32 ROW_WAVES_, u32 TOKEN_WAVES_, u32 AT_ONCE_>
struct HalfShape {
    static constexpr u32 WAVE_ROWS = WAVE_ROWS_, WAVE_TOKENS = WAVE_TOKENS_;
    static constexpr u32 ROW_WAVES = ROW_WAVES_, TOKEN_WAVES = TOKEN_WAVES_;
    static constexpr u32 THREADS = WAVE * ROW_WAVES * TOKEN_WAVES;
    static constexpr u32 ROWS = WAVE_ROWS * ROW_WAVES, TOKENS = WAVE_TOKENS * TOKEN_WAVES;
    // Workgroups on a multiprocessor of NVIDIA, which limits the registers of a thread.
    static constexpr u32 AT_ONCE = AT_ONCE_;
    static constexpr u32 ROW_TILES = WAVE_ROWS / TILE, TOKEN_TILES = WAVE_TOKENS / TILE;
    static constexpr u32 SUMS = ROW_TILES * TOKEN_TILES * 8;
    // Columns of a stage, and the distance of rows in LDS: eight f16 more spread them over the
    // banks, where the order of their pieces does not.
    static constexpr u32 BLOCKS = 2, COLUMNS = 32 * BLOCKS, STRIDE = WGMMA ? COLUMNS : COLUMNS + 8;
    static constexpr u32 PIECES = COLUMNS / 8; // of 16 bytes
    static constexpr u32 FETCH_TOKENS = TOKENS * PIECES / THREADS;
    static_assert(FETCH_TOKENS * THREADS == TOKENS * PIECES);
};

// More tokens per tile take fewer operations to unpack; for few tokens such a tile is half empty.
#if RF_WGMMA
using HalfWide = HalfShape<16, 256, 8, 1, 1>;
using HalfMiddle = HalfShape<16, 128, 8, 1, 2>;
using HalfNarrow = HalfShape<16, 64, 8, 1, 2>;
// Those that two stages read, and one or two that are being written.
constexpr u32 HALF_ROW_BUFFERS = 3;
template <typename Shape>
constexpr u32 HALF_TOKEN_BUFFERS = Shape::TOKENS == 128 ? 3 : 4;
#elif RF_NVIDIA
using HalfWide = HalfShape<64, 64, 2, 4, 1>;
using HalfMiddle = HalfShape<64, 64, 2, 2, 2>;
constexpr u32 HALF_ROW_BUFFERS = 2;
template <typename>
constexpr u32 HALF_TOKEN_BUFFERS = 3;
#else
using HalfWide = HalfShape<64, 64, 2, 4, 1>;
using HalfMiddle = HalfShape<64, 32, 2, 4, 1>;
constexpr u32 HALF_ROW_BUFFERS = 1;
template <typename>
constexpr u32 HALF_TOKEN_BUFFERS = 1;
#endif

// A tile of gate and up in rows of the gated unit.
template <typename Shape>
struct GatedShape {
    static constexpr u32 ROWS = Shape::ROWS / 2, TOKENS = Shape::TOKENS;
};

// COUNT rows of a stage in LDS.
template <typename Shape, u32 COUNT>
struct HalfOperand {
    alignas(WGMMA ? 1024 : 16) f16 of[COUNT][Shape::STRIDE];

    // 8 columns of a row.
    RF_DEVICE_MEMBER u32x4 *piece(u32 row, u32 index) {
        return reinterpret_cast<u32x4 *>(of[row] + (WGMMA ? index ^ row % 8 : index) * 8);
    }
};

// When the copies of a stage are done, and when it has been multiplied.
template <bool COPIED, u32 STAGES>
struct CopyBarriers {};
template <u32 STAGES>
struct CopyBarriers<true, STAGES> {
    PhaseBarrier full[STAGES], read[STAGES];
};

template <typename F, typename Shape>
struct HalfMatmul {
    static constexpr u32 ROW_BUFFERS = HALF_ROW_BUFFERS, TOKEN_BUFFERS = HALF_TOKEN_BUFFERS<Shape>;
    using Rows = HalfOperand<Shape, Shape::ROWS>;
    using Tokens = HalfOperand<Shape, Shape::TOKENS>;
    // Four more waves copy weights that need no unpacking, and the tokens: in a tile that has a
    // multiprocessor for itself. The others only multiply, so that the matrix unit never waits.
    static constexpr bool COPIED = WGMMA && F::COPIED && Shape::AT_ONCE == 1;
    static constexpr u32 COPY_THREADS = COPIED ? 4 * WAVE : 0, LAUNCHED = Shape::THREADS + COPY_THREADS;
    static constexpr u32 STAGES = TOKEN_BUFFERS; // of copied operands
    struct Lds {
        Rows rows[COPIED ? STAGES : ROW_BUFFERS];
        Tokens tokens[TOKEN_BUFFERS];
        [[no_unique_address]] CopyBarriers<COPIED, STAGES> copies;
    };
    using Out = HalfOutput<Shape, LAUNCHED>;
    using Sums = typename Out::Sums;
    static_assert(sizeof(Lds) >= Out::LDS_BYTES);
    // Tiles of tokens whose operands are in registers: RDNA 3 holds each of them twice, in both
    // halves of a wave, and 64 × 64 sums leave room for two.
    static constexpr bool ROOM_FOR_ALL = Shape::TOKEN_TILES * sizeof(MatrixTile::Fragment) <= 64;
    static constexpr u32 TILES_AT_ONCE = ROOM_FOR_ALL ? Shape::TOKEN_TILES : 2;

    // Threads that load a block of weights, and a row of a stage; the rows that a thread loads. AMD
    // has no registers for several rows.
    static constexpr bool DIVIDES_BLOCKS = LOADS_EARLY && Shape::THREADS / F::BLOCK_THREADS >= 2 * WAVE;
    static constexpr u32 BLOCK_THREADS = DIVIDES_BLOCKS ? F::BLOCK_THREADS : 1;
    static constexpr u32 ROW_THREADS = Shape::BLOCKS * BLOCK_THREADS;
    static constexpr u32 FETCH_ROWS = Shape::ROWS * ROW_THREADS / Shape::THREADS;
    static_assert(FETCH_ROWS * Shape::THREADS == Shape::ROWS * ROW_THREADS);

    // Block `block` of the row that starts at block `row`, or a part of it.
    RF_DEVICE_MEMBER static auto fetch_block(const RfWeight &weight, u32 row, u32 block, [[maybe_unused]] u32 part) {
        if constexpr (BLOCK_THREADS == 1) {
            return F::fetch(weight, row + block);
        } else {
            return F::fetch_part(weight, row, block, part);
        }
    }
    using Raw = decltype(fetch_block(RfWeight{}, 0, 0, 0));

    struct Fetch {
        Raw rows[FETCH_ROWS];
        u32x4 tokens[COPY_ASYNC ? 1 : Shape::FETCH_TOKENS];
    };

    // The operands of a tile. The weights start at its first row; those of a gated unit are gate or
    // up, depending on the wave.
    RfWeight weight;
    const f16 *x; // from the first token of this tile on, or all of the experts
    u32 blocks;
    u32 thread;
    float unit; // of the weights
    u32 row_blocks[FETCH_ROWS];       // the first block of each row that this thread loads
    u32 x_bytes[Shape::FETCH_TOKENS]; // where its pieces of the first stage begin

    RF_DEVICE_MEMBER u32 row_of_fetch(u32 i) const {
        return thread / ROW_THREADS + i * (Shape::THREADS / ROW_THREADS);
    }
    RF_DEVICE_MEMBER u32 token_of_fetch(u32 i) const {
        return thread / Shape::PIECES + i * (Shape::THREADS / Shape::PIECES);
    }

    RF_DEVICE_MEMBER void fetch_rows(Fetch &f, u32 stage) const {
        u32 block = stage * Shape::BLOCKS + thread / BLOCK_THREADS % Shape::BLOCKS;
        block = block < blocks ? block : blocks - 1;
#pragma unroll
        for (u32 i = 0; i < FETCH_ROWS; i++) {
            f.rows[i] = fetch_block(weight, row_blocks[i], block, thread % BLOCK_THREADS);
        }
    }

    // Columns after the last one are zeros here, whatever the weights are.
    RF_DEVICE_MEMBER void fetch_tokens(Fetch &f, u32 stage, Tokens &to) const {
        u32 piece = thread % Shape::PIECES;
        bool exists = stage * Shape::COLUMNS + piece * 8 < blocks * 32;
        const u8 *start = reinterpret_cast<const u8 *>(x + stage * Shape::COLUMNS);
#pragma unroll
        for (u32 i = 0; i < Shape::FETCH_TOKENS; i++) {
            const u8 *from = start + x_bytes[i];
            if constexpr (COPY_ASYNC) {
                copy_async_16(to.piece(token_of_fetch(i), piece), from, exists);
            } else {
                f.tokens[i] = u32x4{0, 0, 0, 0};
                if (exists) f.tokens[i] = *reinterpret_cast<const u32x4 *>(from);
            }
        }
    }

    RF_DEVICE_MEMBER void store_rows(const Fetch &f, Rows &to) const {
#pragma unroll
        for (u32 i = 0; i < FETCH_ROWS; i++) {
            u32 row = row_of_fetch(i);
            if constexpr (BLOCK_THREADS == 1) {
                u32 words[HALF_WORDS];
                F::halves(f.rows[i], unit, words);
#pragma unroll
                for (u32 j = 0; j < 4; j++) {
                    *to.piece(row, thread % Shape::BLOCKS * 4 + j) =
                        u32x4{words[4 * j], words[4 * j + 1], words[4 * j + 2], words[4 * j + 3]};
                }
            } else {
                *to.piece(row, thread % Shape::PIECES) = F::part_halves(f.rows[i], unit);
            }
        }
    }

    RF_DEVICE_MEMBER void store_tokens(const Fetch &f, Tokens &to) const {
        if constexpr (!COPY_ASYNC) {
#pragma unroll
            for (u32 i = 0; i < Shape::FETCH_TOKENS; i++) {
                *to.piece(token_of_fetch(i), thread % Shape::PIECES) = f.tokens[i];
            }
        }
    }

    RF_DEVICE_MEMBER static void multiply(const Rows &rows, const Tokens &tokens, u32 wave_row, u32 wave_token,
                                          Sums &sums) {
#pragma unroll
        for (u32 k = 0; k < Shape::COLUMNS; k += TILE) {
#pragma unroll
            for (u32 first = 0; first < Shape::TOKEN_TILES; first += TILES_AT_ONCE) {
                MatrixTile::Fragment y[TILES_AT_ONCE];
#pragma unroll
                for (u32 t = 0; t < TILES_AT_ONCE; t++) {
                    y[t] = MatrixTile::load_rows<Shape::STRIDE>(tokens.of[wave_token + (first + t) * TILE] + k);
                }
#pragma unroll
                for (u32 r = 0; r < Shape::ROW_TILES; r++) {
                    const u8 *plane = reinterpret_cast<const u8 *>(rows.of[wave_row + r * TILE] + k);
                    MatrixTile::Fragment x = MatrixTile::load_x_plane(plane, Shape::STRIDE);
#pragma unroll
                    for (u32 t = 0; t < TILES_AT_ONCE; t++) MatrixTile::multiply_add(x, y[t], sums[r][first + t]);
                }
                // Otherwise the compiler would load all operands first, and keep sums in memory.
#pragma unroll
                for (u32 n = 0; n < Shape::ROW_TILES * TILES_AT_ONCE; n++) {
                    MatrixTile::pin(sums[n / TILES_AT_ONCE][first + n % TILES_AT_ONCE]);
                }
            }
        }
    }

    // The sums of the stages `first` … `end` of the tile. The matrix unit has two stages at a time,
    // so that it never waits for a barrier, while the weights of the next one are unpacked; those
    // of RAW_SETS more are in flight.
    RF_DEVICE_MEMBER void sum_stages_async(Lds &lds, u32 first, u32 end, Sums &sums) const {
        constexpr u32 AHEAD = TOKEN_BUFFERS - 2, RAW_SETS = Shape::TOKENS == 128 ? 1 : 2;
        u32 group_row = wave() / 4 * 64;
        float own[Shape::SUMS] = {};
        Fetch raw[RAW_SETS];
        // All waves have read the last stage of the tile before.
        lds_barrier();
        fetch_rows(raw[0], first);
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) {
            if (first + i < end) fetch_tokens(raw[0], first + i, lds.tokens[(first + i) % TOKEN_BUFFERS]);
            copy_async_commit();
        }
        store_rows(raw[0], lds.rows[first % ROW_BUFFERS]);
#pragma unroll
        for (u32 i = 1; i <= RAW_SETS; i++) {
            if (first + i < end) fetch_rows(raw[i % RAW_SETS], first + i);
        }
#pragma unroll 1
        for (u32 start = first; start < end; start += RAW_SETS) {
#pragma unroll
            for (u32 i = 0; i < RAW_SETS; i++) {
                u32 s = start + i;
                if (s >= end) break;
                Fetch &next = raw[(i + 1) % RAW_SETS];
                copy_async_wait_but<AHEAD - 1>();
                publish_lds();
                lds_barrier();
                u32 rows = wgmma_operand(lds.rows[s % ROW_BUFFERS].of[group_row]);
                u32 tokens = wgmma_operand(lds.tokens[s % TOKEN_BUFFERS].of);
                wgmma_begin();
#pragma unroll
                for (u32 k = 0; k < Shape::COLUMNS / TILE; k++) wgmma(own, rows + 2 * k, tokens + 2 * k);
                wgmma_commit();
                if (s + AHEAD < end) fetch_tokens(next, s + AHEAD, lds.tokens[(s + AHEAD) % TOKEN_BUFFERS]);
                copy_async_commit();
                if (s + 1 < end) store_rows(next, lds.rows[(s + 1) % ROW_BUFFERS]);
                if (s + 1 + RAW_SETS < end) fetch_rows(next, s + 1 + RAW_SETS);
                // The stages before this one are done, and the next step may overwrite them.
                wgmma_wait_but<1>();
            }
        }
        wgmma_wait(own);
        copy_async_wait_but<0>();
#pragma unroll
        for (u32 i = 0; i < Shape::SUMS; i++) sums[0][i / 8][i % 8] = own[i];
    }

    // Copies both operands of the stages `first` … `end` of a tile: what the waves that copy do.
    // The first weights are requested before the previous kernels end. `copied` counts the stages
    // of all tiles.
    RF_DEVICE_MEMBER static void copy_stages(const RfMatmulParams &params, Lds &lds, const MatmulPlace &place, u32 first,
                                             u32 end, u32 &copied) {
        constexpr u32 STEP = COPY_THREADS / Shape::PIECES; // rows copied at once
        static_assert(STEP == TILE);
        u32 thread = thread_x() - Shape::THREADS, own = thread / Shape::PIECES, piece = thread % Shape::PIECES;
        u32 row_bytes = params.columns * (u32)sizeof(f16), up = params.glu.x ? 1 : 0;
        const RfProjection &gate = place.projection, second = chosen(up == 1, params.projections[1], gate);
        const u8 *rows[2] = {static_cast<const u8 *>(gate.weight.low), static_cast<const u8 *>(second.weight.low)};
        const u8 *x = static_cast<const u8 *>(params.x_f16.x) + (u64)place.first_token * row_bytes;
#pragma unroll
        for (u32 i = 0; i < 2; i++) rows[i] += (u64)place.weight_row * row_bytes;
        u32 row_of[Shape::ROWS / STEP], token_of[Shape::TOKENS / STEP];
#pragma unroll
        for (u32 i = 0; i < Shape::ROWS / STEP; i++) {
            u32 row = (i >> up) * STEP + own, last = gate.rows - 1 - place.first_row;
            row_of[i] = (row < last ? row : last) * row_bytes + piece * 16;
        }
#pragma unroll
        for (u32 i = 0; i < Shape::TOKENS / STEP; i++) {
            u32 token = i * STEP + own, last = place.tokens - 1;
            token_of[i] = (token < last ? token : last) * row_bytes + piece * 16;
        }
#pragma unroll 1
        for (u32 s = first; s < end; s++, copied++) {
            u32 buffer = copied % STAGES, at = s * Shape::COLUMNS * (u32)sizeof(f16);
            bool exists = s * Shape::COLUMNS + piece * 8 < params.columns;
            lds.copies.read[buffer].wait(copied / STAGES - 1);
#pragma unroll
            for (u32 i = 0; i < Shape::ROWS / STEP; i++) {
                copy_async_16(lds.rows[buffer].piece(i * STEP + own, piece), rows[i % 2] + at + row_of[i], exists);
            }
            await_previous_kernels();
#pragma unroll
            for (u32 i = 0; i < Shape::TOKENS / STEP; i++) {
                copy_async_16(lds.tokens[buffer].piece(i * STEP + own, piece), x + at + token_of[i], exists);
            }
            lds.copies.full[buffer].arrive_after_copies();
        }
    }

    // The sums of these stages: what the other waves do. The matrix unit has two stages at a time.
    // Returns when all waves have read the last stage.
    RF_DEVICE_MEMBER static void sum_copied(Lds &lds, u32 first, u32 end, u32 &copied, Sums &sums) {
        u32 group_row = wave() / 4 * 64;
        float own[Shape::SUMS] = {};
        await_previous_kernels();
#pragma unroll 1
        for (u32 s = first; s < end; s++, copied++) {
            u32 buffer = copied % STAGES;
            lds.copies.full[buffer].wait(copied / STAGES);
            publish_lds();
            u32 rows = wgmma_operand(lds.rows[buffer].of[group_row]), tokens = wgmma_operand(lds.tokens[buffer].of);
            wgmma_begin();
#pragma unroll
            for (u32 k = 0; k < Shape::COLUMNS / TILE; k++) wgmma(own, rows + 2 * k, tokens + 2 * k);
            wgmma_commit();
            wgmma_wait_but<1>();
            if (s > first && lane() == 0) lds.copies.read[(copied - 1) % STAGES].arrive();
        }
        wgmma_wait(own);
        PhaseBarrier &last = lds.copies.read[(copied - 1) % STAGES];
        if (lane() == 0) last.arrive();
        last.wait((copied - 1) / STAGES);
#pragma unroll
        for (u32 i = 0; i < Shape::SUMS; i++) sums[0][i / 8][i % 8] = own[i];
    }

    // What sum_stages_async does, on other matrix units.
    RF_DEVICE_MEMBER void sum_stages(Lds &lds, u32 first, u32 end, u32 wave_row, u32 wave_token, Sums &sums) const {
        Fetch next;
        // All waves have read the last stage of the tile before.
        lds_barrier();
        fetch_rows(next, first);
        if constexpr (COPY_ASYNC) {
            fetch_tokens(next, first, lds.tokens[first % TOKEN_BUFFERS]);
            copy_async_commit();
            if (first + 1 < end) fetch_tokens(next, first + 1, lds.tokens[(first + 1) % TOKEN_BUFFERS]);
            copy_async_commit();
            store_rows(next, lds.rows[first % ROW_BUFFERS]);
#pragma unroll 1
            for (u32 s = first; s < end; s++) {
                copy_async_wait_but<1>();
                lds_barrier();
                bool more = s + 1 < end;
                if (more) fetch_rows(next, s + 1);
                if (s + 2 < end) fetch_tokens(next, s + 2, lds.tokens[(s + 2) % TOKEN_BUFFERS]);
                copy_async_commit();
                multiply(lds.rows[s % ROW_BUFFERS], lds.tokens[s % TOKEN_BUFFERS], wave_row, wave_token, sums);
                if (more) store_rows(next, lds.rows[(s + 1) % ROW_BUFFERS]);
            }
            copy_async_wait_but<0>();
        } else {
            fetch_tokens(next, first, lds.tokens[0]);
#pragma unroll 1
            for (u32 s = first; s < end; s++) {
                store_rows(next, lds.rows[0]);
                store_tokens(next, lds.tokens[0]);
                lds_barrier();
                if (s + 1 < end) {
                    fetch_rows(next, s + 1);
                    fetch_tokens(next, s + 1, lds.tokens[0]);
                }
                multiply(lds.rows[0], lds.tokens[0], wave_row, wave_token, sums);
                if (s + 1 < end) lds_barrier();
            }
        }
    }

    RF_DEVICE_MEMBER static void run(const RfMatmulParams &params) {
        Lds &lds = *shared_memory<Lds>();
        // Kernels that unpack weights take 1 to 2 % longer if they start early.
        if constexpr (COPIED) allow_next_kernel();
        F::prepare(Shape::THREADS);
        u32 stages = (params.columns / 32 + Shape::BLOCKS - 1) / Shape::BLOCKS;
        u32 rows = params.glu.x ? row_tiles<GatedShape<Shape>>(params) : row_tiles<Shape>(params);
        HalfShares shares = HalfShares::of(params, params.token_tiles * rows, stages);
        u32 unit = shares.first(group_x()), end = shares.first(group_x() + 1), copied = 0;
        if constexpr (COPIED) {
            if (thread_x() < STAGES) {
                lds.copies.full[thread_x()].start(COPY_THREADS);
                lds.copies.read[thread_x()].start(Shape::THREADS / WAVE);
            }
        }
#pragma unroll 1
        for (u32 round = 0; round < params.rounds || unit < end; round++) {
            bool is_whole = round < params.rounds;
            u32 index = is_whole ? round * params.streams + group_x() : shares.first_tile + unit / stages;
            u32 stage = is_whole ? 0 : unit % stages, rest = is_whole ? stages : end - unit;
            u32 last = stages - stage < rest ? stages : stage + rest;
            if constexpr (COPIED) {
                copied_tile(params, lds, index, {stage, last}, shares, copied);
            } else {
                tile(params, lds, index, {stage, last}, shares);
            }
            if (!is_whole) unit += last - stage;
        }
        // Workgroups without a tile wait, too.
        if constexpr (COPIED) await_previous_kernels();
    }

private:
    RF_DEVICE_MEMBER static MatmulPlace place_of(const RfMatmulParams &params, u32 index) {
        MatmulTile at = {index % params.token_tiles, index / params.token_tiles};
        if (params.groups.tiles) at = {group_y(), group_x()};
        return params.glu.x ? place_of_tile<GatedShape<Shape>>(params, at) : place_of_tile<Shape>(params, at);
    }

    // As tile(), with waves that copy. `copied` counts the stages of all tiles of the workgroup.
    RF_DEVICE_MEMBER static void copied_tile(const RfMatmulParams &params, Lds &lds, u32 index, MatmulStages range,
                                             const HalfShares &shares, u32 &copied) {
        MatmulPlace place = place_of(params, index);
        if (place.first_row >= place.projection.rows || place.tokens == 0) return;
        // The LDS of the tile before has been read.
        lds_barrier();
        if (wave() >= Shape::THREADS / WAVE) {
            copy_stages(params, lds, place, range.first, range.end, copied);
        } else {
            Sums sums;
            sum_copied(lds, range.first, range.end, copied, sums);
            Out::store_sums(params, Out::tokens_in(&lds), wave() * Shape::WAVE_ROWS, sums);
        }
        finish_tile(params, lds, index, range, shares);
    }

    // Writes the sums of the stages `range` of a tile, which the waves store to LDS, or passes them
    // on if other workgroups have the rest.
    RF_DEVICE_MEMBER static void finish_tile(const RfMatmulParams &params, Lds &lds, u32 index, MatmulStages range,
                                             const HalfShares &shares) {
        typename Out::LdsTokens all = Out::tokens_in(&lds);
        // Again, since its registers are needed in between.
        MatmulPlace place = place_of(params, computed_here(index));
        lds_barrier();
        typename Out::Tokens tokens = {0, place.tokens};
        if (range.end - range.first < shares.stages) {
            tokens = Out::join_tokens(params, shares, index - shares.first_tile, all, place.tokens);
        }
        Out::write_tokens(params, all, place, tokens);
    }

    // Sums the stages `range` of a tile and writes them, or passes them on if other workgroups have
    // the rest.
    RF_DEVICE_MEMBER static void tile(const RfMatmulParams &params, Lds &lds, u32 index, MatmulStages range,
                                      const HalfShares &shares) {
        u32 wave_row = wave() % Shape::ROW_WAVES * Shape::WAVE_ROWS;
        u32 wave_token = wave() / Shape::ROW_WAVES * Shape::WAVE_TOKENS;
        bool is_gated = params.glu.x;
        MatmulPlace place = place_of(params, index);
        // All rows that a wave loads are of gate, or of up.
        constexpr u32 TILE_WAVES = TILE * ROW_THREADS / WAVE;
        static_assert(Shape::THREADS / ROW_THREADS % (2 * TILE) == 0);
        bool is_up = is_gated && wave() / TILE_WAVES % 2 == 1;
        RfProjection p = chosen(is_up, params.projections[1], place.projection);
        if (place.first_row >= p.rows || place.tokens == 0) return;
        HalfMatmul self;
        self.thread = computed_here(thread_x());
        self.blocks = params.columns / 32;
        self.weight = row_of<F>(p.weight, place.weight_row, self.blocks);
        u32 first_x_row = params.groups.slots ? 0 : place.first_token;
        self.x = static_cast<const f16 *>(params.x_f16.x) + (u64)first_x_row * params.columns;
        self.unit = p.half_unit;
#pragma unroll
        for (u32 i = 0; i < FETCH_ROWS; i++) {
            u32 row = self.row_of_fetch(i), last = p.rows - 1 - place.first_row;
            row = is_gated ? row / (2 * TILE) * TILE + row % TILE : row;
            // The last row instead of those that do not exist.
            self.row_blocks[i] = (row < last ? row : last) * self.blocks;
        }
#pragma unroll
        for (u32 i = 0; i < Shape::FETCH_TOKENS; i++) {
            // The last token instead of those that do not exist.
            u32 row = place.x_row(params, self.token_of_fetch(i)) - first_x_row;
            self.x_bytes[i] = (row * params.columns + self.thread % Shape::PIECES * 8) * sizeof(f16);
        }

        Sums sums;
#pragma unroll
        for (u32 r = 0; r < Shape::ROW_TILES; r++) {
#pragma unroll
            for (u32 t = 0; t < Shape::TOKEN_TILES; t++) sums[r][t] = MatrixTile::zero();
        }
        if constexpr (WGMMA) {
            self.sum_stages_async(lds, range.first, range.end, sums);
            // All waves have read the last stage.
            lds_barrier();
            Out::store_sums(params, Out::tokens_in(&lds), wave_row, sums);
            finish_tile(params, lds, index, range, shares);
            return;
        }
        self.sum_stages(lds, range.first, range.end, wave_row, wave_token, sums);
        if (range.end - range.first < shares.stages) {
            if (!Out::join(params, shares, index - shares.first_tile, sums)) return;
        }
        // Again, since its registers are needed in between.
        place = place_of(params, computed_here(index));
        if (is_gated) {
            Out::write_gated(params, &lds, place, wave_row, wave_token, sums);
        } else {
            Out::write(params, place, wave_row, wave_token, sums);
        }
    }

};

} // namespace rf

#if RF_WGMMA
// Weights of 16 bits for activations in the order of columns.
#define RF_HALF_MATMUL_NATURAL(NAME, FORMAT)                                                                           \
    RF_KERNEL_AT_ONCE((rf::HalfMatmul<FORMAT, rf::HalfWide>::LAUNCHED), 1)                                             \
    matmul_wide_##NAME##_f16_f32(RfMatmulParams p) { rf::HalfMatmul<FORMAT, rf::HalfWide>::run(p); }                   \
    RF_MATMUL_KERNEL(rf::HalfMiddle) matmul_middle_##NAME##_f16_f32(RfMatmulParams p) {                                \
        rf::HalfMatmul<FORMAT, rf::HalfMiddle>::run(p);                                                                \
    }                                                                                                                  \
    RF_HALF_NARROW(NAME, FORMAT)
#define RF_HALF_NARROW(NAME, FORMAT)                                                                                   \
    RF_MATMUL_KERNEL(rf::HalfNarrow) matmul_narrow_##NAME##_f16_f32(RfMatmulParams p) {                                \
        rf::HalfMatmul<FORMAT, rf::HalfNarrow>::run(p);                                                                \
    }
#else
#define RF_HALF_MATMUL_NATURAL(NAME, FORMAT)
#define RF_HALF_NARROW(NAME, FORMAT)
#endif
// The kernels of one format: RfMatmulParams; grid [streams], of experts [tiles of rows, tiles of
// slots], Shape::THREADS threads.
#define RF_HALF_MATMUL_OF(NAME, FORMAT)                                                                                \
    RF_MATMUL_KERNEL(rf::HalfWide) matmul_wide_##NAME##_f16_f32(RfMatmulParams p) {                                    \
        rf::HalfMatmul<FORMAT, rf::HalfWide>::run(p);                                                                  \
    }                                                                                                                  \
    RF_MATMUL_KERNEL(rf::HalfMiddle) matmul_middle_##NAME##_f16_f32(RfMatmulParams p) {                                \
        rf::HalfMatmul<FORMAT, rf::HalfMiddle>::run(p);                                                                \
    }                                                                                                                  \
    RF_HALF_NARROW(NAME, FORMAT)
#define RF_HALF_MATMUL(NAME, FORMAT, NUMBER) RF_HALF_MATMUL_OF(NAME, rf::Halves<rf::FORMAT>)

#else

#define RF_HALF_MATMUL_OF(NAME, FORMAT)
#define RF_HALF_MATMUL_NATURAL(NAME, FORMAT)
#define RF_HALF_MATMUL(NAME, FORMAT, NUMBER)

#endif
