"""Three models of two clients on MovieLens-1M, as ``make demo FORMAT=movielens`` prepares it.

Their inputs include text: title words, genres and the movies that the user rated before.
"""

import headrace as hr

user, movie, last_movie = hr.int64("user_id"), hr.int64("movie_id"), hr.int64("last_movie_id")
history, genres, last_genres = (
    hr.ragged("history", "int64"),
    hr.ragged("genres", "string"),
    hr.ragged("last_genres", "string"),
)
title_words = hr.text("title").lower().normalize().unigrams()
age, occupation, gender = hr.int64("age"), hr.int64("occupation"), hr.text("gender")

MOVIES = 10_000
SHARED = {
    "movie": movie.hash_buckets(MOVIES),
    "history": history.hash_buckets(MOVIES),
    "last_x_movie": hr.cross(last_movie, movie, buckets=500_000),
    "history_x_movie": hr.cross(history, movie, buckets=1_000_000),
    "user": user.hash_buckets(20_000),
    "user_x_genre": hr.cross(user, genres, buckets=200_000),
    "title_words": title_words.hash_buckets(20_000),
    "title_pairs": title_words.ngrams(2).hash_buckets(50_000),
    "genres": genres.hash_buckets(100),
    "shared_genres": (genres & last_genres).hash_buckets(100),
    "new_genres": (genres - last_genres).hash_buckets(100),
    "movie_x_age": hr.cross(movie, age, buckets=100_000),
    "movie_x_gender": hr.cross(movie, gender, buckets=50_000),
    "occupation": occupation.hash_buckets(100),
    "year": hr.int64("year").bucketize(
        [1940.0, 1950.0, 1960.0, 1970.0, 1980.0, 1985.0, 1990.0, 1994.0, 1997.0, 1999.0]
    ),
    "recent": hr.int64("movie_clicks_recent").cast("float32").log1p().scale(0.25, -1.0),
    "user_clicks": hr.int64("user_clicks").cast("float32").log1p().scale(0.25, -1.0),
}


def movie_model(name: str, client: str, priority: int) -> hr.Model:
    """A model with every shared input."""
    model = hr.Model(name, client=client, priority=priority, label="clicked")
    for key, expression in SHARED.items():
        model.input(key, expression)
    return model


movie_ctr = movie_model("movie_ctr", "movies", 10)

movie_ctr_next = movie_model("movie_ctr_next", "movies", 5)
movie_ctr_next.input("movie_x_occupation", hr.cross(movie, occupation, buckets=100_000))

trailer_ctr = movie_model("trailer_ctr", "trailers", 8)
trailer_ctr.input("zip_area", hr.text("zip").char_ngrams(3).head(1).hash_buckets(2_000))
