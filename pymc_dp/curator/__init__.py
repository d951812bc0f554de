"""For curators, who hold confidential records: sampling that is itself private."""
