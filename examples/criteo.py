"""Three models of two clients on a display-ads log in Criteo's format: 13 integers and 26 categories."""

import headrace as hr

NUMBERS = {
    f"integer_{n}": hr.int64(f"integer_{n}").cast("float32").fill_null(0.0).clip(0.0, 1e9).log1p().scale(0.2)
    for n in range(1, 14)
}
CATEGORIES = {f"category_{n}": hr.text(f"category_{n}").hash_buckets(20_000) for n in range(1, 27)}


def display_model(name: str, client: str, priority: int) -> hr.Model:
    """A model with every number and every category."""
    model = hr.Model(name, client=client, priority=priority, label="clicked")
    for key, expression in {**NUMBERS, **CATEGORIES}.items():
        model.input(key, expression)
    return model


display_ctr = display_model("display_ctr", "display", 10)

display_ctr_next = display_model("display_ctr_next", "display", 5)
display_ctr_next.input("9_x_14", hr.cross(hr.text("category_9"), hr.text("category_14"), buckets=20_000))

retarget_ctr = display_model("retarget_ctr", "retargeting", 8)
retarget_ctr.input("integer_5_step", hr.int64("integer_5").bucketize([0.0, 10.0, 100.0, 1_000.0, 10_000.0]))
