"""The TensorFlow operations that a bridged graph may hold: their results depend only on inputs and attributes.

The list was generated from the registry of the pinned TensorFlow (``candidates`` in
``tests/transforms/twins/test_allowed_operations.py``: not stateful, no resource, no reference, no function, no file or seed among
the attributes) and then reviewed. The excluded candidates:

    memory that is not written    DynamicStitch (gaps), FakeParam, FusedBatchNorm* (spare outputs)
    order of arrival              AccumulateNV2, ParallelConcat, ParallelDynamicStitch, Merge and the other parts of
                                  version 1 control flow
    order of a salted hash map    DecodeJSONExample (a serialized map), TensorMapStackKeys; also LookupTableExportV2
    changes its input             InplaceAdd, InplaceSub, InplaceUpdate
    chance                        ExtractGlimpse (noise beyond the border), Stateless*, RandomIndexShuffle,
                                  StochasticCastToInt, K*Initialization, FractionalMaxPool, FractionalAvgPool
    files                         MatchingFiles, ReadFile, ImmutableConst, GenerateVocabRemapping, SdcaOptimizer;
                                  DecodeProtoV2 and EncodeProto (descriptors from a file or from the process)
    the machine                   DeviceIndex, CheckPinned, Copy*, HostConst, GetDeadline, GetTpuTaskId, ApproxTopK
    Python                        PyFuncStateless
    no use in preprocessing       gradients, recurrent cells, quantized kernels, CSR matrices, Xla*, Risc*, TPU,
                                  DTensor, data sets, and the operations of TensorFlow's own tests

``ALLOWED`` is a value: a package that registers more operations does not change it.
"""

from __future__ import annotations

#: The allowed operations by topic.
GROUPS: dict[str, str] = {
    "arithmetic, comparison and logic": """
        Abs Acos Acosh Add AddN AddV2 Angle ApproximateEqual Asin Asinh Atan Atan2 Atanh BesselI0 BesselI0e BesselI1
        BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Betainc Ceil ClipByValue
        Complex ComplexAbs Conj Cos Cosh Cross Dawsn Digamma Div DivNoNan Equal Erf Erfc Erfinv Exp Expint Expm1 Floor
        FloorDiv FloorMod FresnelCos FresnelSin Greater GreaterEqual Igamma Igammac Imag Inv IsFinite IsInf IsNan Less
        LessEqual Lgamma Log Log1p LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod Mul MulNoNan Ndtri Neg NextAfter
        NotEqual Polygamma Pow Real RealDiv Reciprocal Rint Round Rsqrt Sigmoid Sign Sin Sinh Spence Sqrt Square
        SquaredDifference Sub Tan Tanh TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta
    """,
    "bits of integers": """
        BitwiseAnd BitwiseOr BitwiseXor Invert LeftShift PopulationCount RightShift
    """,
    "element types": """
        Bitcast Cast Dequantize FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel
        QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 QuantizeV2 ToBool
    """,
    "constants, shapes and copies": """
        BatchToSpace BatchToSpaceND BroadcastArgs BroadcastTo Concat ConcatOffset ConcatV2 ConjugateTranspose Const
        DataFormatDimMap DataFormatVecPermute DepthToSpace Diag DiagPart EnsureShape ExpandDims Fill Identity IdentityN
        InvertPermutation LinSpace MatrixBandPart MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3
        MatrixDiagV2 MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MirrorPad NoOp OneHot OnesLike Pack Pad
        PadV2 PlaceholderWithDefault PreventGradient Range Rank Reshape Reverse ReverseSequence ReverseV2 Roll Shape
        ShapeN Size Slice Snapshot SpaceToBatch SpaceToBatchND SpaceToDepth Split SplitV Squeeze StopGradient
        StridedSlice TensorStridedSliceUpdate Tile Transpose Unpack UnravelIndex ZerosLike
    """,
    "selection, search and scattering": """
        ArgMax ArgMin Bucketize DynamicPartition Gather GatherNd GatherV2 InTopK InTopKV2 ListDiff LowerBound NthElement
        ScatterNd Select SelectV2 TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub
        TensorScatterUpdate TopKV2 Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 UpperBound Where
    """,
    "reductions, counts and segments": """
        All Any Bincount Cumprod Cumsum CumulativeLogsumexp DenseBincount DenseCountSparseOutput EuclideanNorm
        HistogramFixedWidth L2Loss Max Mean Min Prod RaggedBincount RaggedCountSparseOutput SegmentMax SegmentMaxV2
        SegmentMean SegmentMin SegmentMinV2 SegmentProd SegmentProdV2 SegmentSum SegmentSumV2 SparseBincount
        SparseCountSparseOutput Sum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum
    """,
    "text": """
        AsString DecodeBase64 EditDistance EncodeBase64 Fingerprint ReduceJoin RegexFullMatch RegexReplace
        StaticRegexFullMatch StaticRegexReplace StringFormat StringJoin StringLength StringLower StringNGrams
        StringSplit StringSplitV2 StringStrip StringToHashBucket StringToHashBucketFast StringToHashBucketStrong
        StringToNumber StringUpper Substr UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript
        UnicodeTranscode UnsortedSegmentJoin
    """,
    "parsing and serializing bytes": """
        DecodeCSV DecodeCompressed DecodePaddedRaw DecodeRaw DeserializeManySparse DeserializeSparse ParseExample
        ParseExampleV2 ParseSequenceExample ParseSequenceExampleV2 ParseSingleExample ParseSingleSequenceExample
        ParseTensor SerializeManySparse SerializeSparse SerializeTensor
    """,
    "sparse tensors": """
        DenseToDenseSetOperation DenseToSparseSetOperation SetSize SparseAdd SparseConcat SparseCross SparseCrossHashed
        SparseCrossV2 SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul SparseFillEmptyRows SparseMatMul
        SparseReduceMax SparseReduceMaxSparse SparseReduceSum SparseReduceSumSparse SparseReorder SparseReshape
        SparseSegmentMean SparseSegmentMeanWithNumSegments SparseSegmentSqrtN SparseSegmentSqrtNWithNumSegments
        SparseSegmentSum SparseSegmentSumWithNumSegments SparseSlice SparseSoftmax SparseSparseMaximum
        SparseSparseMinimum SparseSplit SparseTensorDenseAdd SparseTensorDenseMatMul SparseToDense
        SparseToSparseSetOperation
    """,
    "ragged tensors": """
        RaggedCross RaggedFillEmptyRows RaggedGather RaggedRange RaggedTensorFromVariant RaggedTensorToSparse
        RaggedTensorToTensor RaggedTensorToVariant
    """,
    "lists of tensors, which loops are made of": """
        EmptyTensorList TensorListConcat TensorListConcatLists TensorListConcatV2 TensorListElementShape
        TensorListFromTensor TensorListGather TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack
        TensorListPushBackBatch TensorListReserve TensorListResize TensorListScatter TensorListScatterIntoExistingList
        TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack
    """,
    "linear algebra and Fourier transforms": """
        BandedTriangularSolve BatchMatMul BatchMatMulV2 BatchMatMulV3 Cholesky Eig Einsum FFT FFT2D FFT3D FFTND IFFT
        IFFT2D IFFT3D IFFTND IRFFT IRFFT2D IRFFT3D IRFFTND LogMatrixDeterminant Lu MatMul MatrixDeterminant
        MatrixInverse MatrixLogarithm MatrixSolve MatrixSolveLs MatrixSquareRoot MatrixTriangularSolve Qr RFFT RFFT2D
        RFFT3D RFFTND SelfAdjointEigV2 Svd TridiagonalMatMul TridiagonalSolve
    """,
    "layers of neural networks, forward only": """
        AvgPool AvgPool3D BiasAdd BiasAddV1 Conv Conv2D Conv3D DepthwiseConv2dNative Dilation2D Elu LRN LeakyRelu
        LogSoftmax MaxPool MaxPool3D MaxPoolV2 MaxPoolWithArgmax Relu Relu6 Selu Softmax SoftmaxCrossEntropyWithLogits
        Softplus Softsign SparseSoftmaxCrossEntropyWithLogits
    """,
    "images and sound": """
        AdjustContrastv2 AdjustHue AdjustSaturation AudioSpectrogram CropAndResize DecodeAndCropJpeg DecodeBmp DecodeGif
        DecodeImage DecodeJpeg DecodePng DecodeWav EncodeJpeg EncodeJpegVariableQuality EncodePng EncodeWav
        ExtractImagePatches ExtractJpegShape ExtractVolumePatches HSVToRGB ImageProjectiveTransformV2
        ImageProjectiveTransformV3 Mfcc NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4
        NonMaxSuppressionV5 RGBToHSV ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor ScaleAndTranslate
    """,
}

ALLOWED: frozenset[str] = frozenset(name for names in GROUPS.values() for name in names.split())

#: Their bodies are written into the graph and checked node by node.
CALLS: frozenset[str] = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
CONTROL_FLOW: frozenset[str] = frozenset({"Case", "If", "StatelessCase", "StatelessIf", "StatelessWhile", "While"})

#: They read a table, whose contents are written into the graph. Not LookupTableExportV2: its order is salted.
TABLE_READS: frozenset[str] = frozenset({"LookupTableFindV2", "LookupTableSizeV2"})
#: Only the bridge itself writes these, with contents that are constants of the graph.
TABLE_WRITES: frozenset[str] = frozenset({"HashTableV2", "LookupTableImportV2"})

#: Stateful only by their effect: they return nothing, or their inputs.
EFFECTS: frozenset[str] = frozenset({"Assert", "Print", "PrintV2"})

#: The operations that a function's graph may hold in the reach of an output.
READABLE: frozenset[str] = ALLOWED | CALLS | CONTROL_FLOW | TABLE_READS | EFFECTS
#: The operations that the document of a component may hold.
STORED: frozenset[str] = READABLE | TABLE_WRITES

#: Python callbacks: the graph holds only a token of this process.
CALLBACKS: frozenset[str] = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
