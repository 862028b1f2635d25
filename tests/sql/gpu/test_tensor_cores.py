"""Tensor cores by kernel name: every rule with real names that it covers, and names that decide nothing."""

from __future__ import annotations

from pipelines.base.datafiles import rule_rows
from tests.harness import kernel, rows_of

YES = {
    "instruction-shape": [
        "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn",
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
        "turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
        "volta_h884gemm_64x128_ldg8_nn",
    ],
    "instruction-name": [
        "void cutlass::Kernel<cutlass_80_tensorop_f16_128x128_16x4_nn_align4>(Params)",
        "void cutlass::device_kernel<MainloopSm90TmaGmmaWarpSpecialized>(Params)",
    ],
    "xmma": [
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off",
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4",
    ],
    "pytorch-int4": [
        "void at::native::tinygemm_m16n8k16_chunk_kernel<at::native::ALayout_RM<(at::native::KReductionType)0>, 4>(int)"
    ],
    "nvjet": ["nvjet_tst_192x8_64x8_4x1_v_bz_TNT"],
    "flash-attention": [
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>(Params)",
        "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>(Params)",
        "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(Params)",
    ],
    "narrow-batched-gemm": [
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM",
        "bmm_E4m3_E4m3E4m3_Fp32_t128x64x128u2_s6_et64x64_m64x64x32_c1x1x1_rM_TN_transOut_noShfl_dsFp8_schPd4x2x2x3_bN_tma_tmaSf_rgTma_clmp_lbW4_dynB_sm100f",
        "Gemm_Bfloat16_E4m3E4m3_Fp32_t128x8x128_s7_et128x8_m128x8x32_cga1x1x2_16dp256b_splitK2_BN_transOut_schedS_sm100f",
    ],
    "triton-kernels-moe": ["_matmul_ogs_NNT_bf16xbf16xmxfp4_32x256x256x1_swiglu", "_p_matmul_ogs_NNT_bf16xbf16xbf16_128x256x64x1"],
    "triton-attention": ["attn_fwd", "_attn_fwd", "attn_fwd.kd"],
    "tensile-matrix-instruction": [
        "Cijk_Ailk_Bljk_BBS_BH_MT256x112x32_MI16x16x16x1_SN_1LDSB0_APM1",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x256_MI16x16x1_SN_LDSB1",
        "Cijk_Alik_Bljk_S_MX_B_UserArgs_MT128x160x64_MI16x16x1_SN_LDSB0",
    ],
    "tensile-float32-matrix-instruction": [
        "Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1_SN_LDSB0",
        "Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT16x16x64_MI16x16x1_SN_LDSB0",
    ],
    "mfma": [
        "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16>(int)",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34Gridwise",
        "_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47Gridwise",
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8",
    ],
}  # fmt: skip
NO = {
    "simt": [
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(Params)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4",
    ],
    "single-precision-gemm": [
        "ampere_sgemm_128x64_nn", "volta_sgemm_fp16_128x64_nt", "ampere_gcgemm_64x64_nt", "void sgemm_largek_lds64<true>()",
        "void implicit_convolve_sgemm<float, float, 1024>(int)", "cudnn_infer_volta_scudnn_128x64_relu_small_nn_v1",
        "void magma_sgemmEx_kernel<float, float, float>(int)",
        "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)",
    ],
    "flash-helper": [
        "void flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<128>>(Params)",
        "void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16>(int)",
    ],
    "inductor-pointwise": ["triton_poi_fused_add_addmm_silu_21", "triton_red_fused_add_addmm_mul_native_layer_norm_18"],
    "gemv": ["void gemv2T_kernel_val<int, int, float>(int)", "void gemmSN_NN_kernel<float, 256>(int)", "void dot_kernel<float>(int)"],
    "pytorch-native": ["void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"],
    "sort-and-scan": ["void cub::DeviceScanKernel<cub::DeviceScanPolicy<int>::Policy600>(int*)"],
    "elementwise-and-reduction": [
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>(float)",
        "void cudnn::bn_fw_tr_1C11_singleread<float, 512>(float)", "void splitKreduce_kernel<32, 16, int, float>(int)",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10>(float*)",
        "void xmma_cudnn::nchwToNhwcKernel<float, float, float>(int)",
    ],
}  # fmt: skip
UNKNOWN = {
    "inductor-template": ["triton_tem_fused_mm_7", "triton_tem_fused_addmm_native_layer_norm_transpose_3"],
    "tensile-float32": ["Cijk_Ailk_Bljk_SB_MT64x64x8_SE"],
}  # fmt: skip
SILENT = [
    "triton__0d1d2d", "sm80_xmma_pooling_fw_4d_FP16NHWC", "void xmma_cudnn::ext::depthwise_convolution::kernel<float>(int)", "attn_fwd_reduce", "_matmul_ogs_NNT_fp32xfp32xfp32_16x16x16x1", "bmm_kernel", "ampere_dgemm_128x64_nn", "my_kernel",
    "fmha_cutlassF_f32_aligned_64x64_rf_sm80(Params)",
]  # fmt: skip


def test_every_rule_by_names_that_it_is_for() -> None:
    expected = [(name, True, rule) for rule, names in YES.items() for name in names]
    expected += [(name, False, rule) for rule, names in NO.items() for name in names]
    expected += [(name, None, rule) for rule, names in UNKNOWN.items() for name in names]
    expected += [(name, None, None) for name in SILENT]
    events = [kernel(name, 10 * i, 5, i) for i, (name, *_) in enumerate(expected)]
    rows = rows_of(events, "tensor_core_use", "name, uses_tensor_cores, rule_id")
    assert {row[0]: row for row in rows} == {row[0]: row for row in expected}
    assert {(row["rule_id"], row["uses_tensor_cores"]) for row in rule_rows("tensor_core_kernels")} == {
        *((rule, "true") for rule in YES), *((rule, "false") for rule in NO), *((rule, "") for rule in UNKNOWN)
    }  # fmt: skip


def test_only_computing_kernels_are_asked() -> None:
    events = [
        kernel("ncclDevKernel_AllReduce", 0, 5, 1), kernel("Memcpy HtoD", 10, 5, 2, cat="gpu_memcpy"),
        kernel("nvjet_tst", 20, 5, 3), kernel("nvjet_tst", 30, 5, 4), kernel("nvjet_tst", 30, 5, 5, device=1),
    ]  # fmt: skip
    columns = "device, name, uses_tensor_cores, n_kernels, gpu_ns"
    assert rows_of(events, "tensor_core_use", columns) == [
        (0, "nvjet_tst", True, 2, 10_000),
        (1, "nvjet_tst", True, 1, 5000),
    ]
