#include <cstdio>

#define TILE_DIM 32
#define BLOCK_ROWS 8

/* Through shared memory; the extra column keeps the banks apart. */
__global__ void transpose(const float *in, float *out, int height, int width)
{
    __shared__ float tile[TILE_DIM][TILE_DIM + 1];

    int x = blockIdx.x * TILE_DIM + threadIdx.x;
    int y = blockIdx.y * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < width && y + j < height)
            tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    __syncthreads();

    int tx = blockIdx.y * TILE_DIM + threadIdx.x;
    int ty = blockIdx.x * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (tx < height && ty + j < width)
            out[(ty + j) * height + tx] = tile[threadIdx.x][threadIdx.y + j];
}

void launch_transpose(const float *in, float *out, int height, int width)
{
    dim3 block(TILE_DIM, BLOCK_ROWS);
    dim3 grid((width + TILE_DIM - 1) / TILE_DIM, (height + TILE_DIM - 1) / TILE_DIM);
    transpose<<<grid, block>>>(in, out, height, width);
}
