"""Three models of two clients on a display-ads log in Criteo's format: 13 integers and 26 categoricals."""

import headrace as hr

NUMBERS = {f"i{n}": hr.int64(f"i{n}").cast("float32").fill_null(0.0).clip(0.0, 1e9).log1p() for n in range(1, 14)}
IDS = {f"c{n}": hr.text(f"c{n}").hash_buckets(20_000) for n in range(1, 27)}


def display_model(name: str, client: str, priority: int) -> hr.Model:
    """A model with every number and every categorical."""
    model = hr.Model(name, client=client, priority=priority, label="label")
    for key, expression in {**NUMBERS, **IDS}.items():
        model.input(key, expression)
    return model


display_ctr = display_model("display_ctr", "display", 10)

display_ctr_crossed = display_model("display_ctr_crossed", "display", 5)
display_ctr_crossed.input("c9_x_c14", hr.cross(hr.text("c9"), hr.text("c14"), buckets=20_000))

retarget_ctr = display_model("retarget_ctr", "retargeting", 8)
retarget_ctr.input("i5_step", hr.int64("i5").bucketize([0, 10, 100, 1_000, 10_000]))
